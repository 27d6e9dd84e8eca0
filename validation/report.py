"""A verdict of the gate as a page for people: what was decided, on what evidence, with which weights."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from engram.core.betting import MeanTest
from engram.core.durable import write_atomic
from engram.core.statistics import wilson
from engram.learning.weights.gate_verdict import GateVerdict
from engram.validation.worst_case import WorstCase

GAIN = {"b": 0, "-": 0, "c": 1, "a": -1}
"""Candidate minus the policy that drives, by the characters of ``TaskEvidence.outcomes``."""
WHO = ("candidate", "approved")
PROGRESS = ("progress of the candidate", "progress of what drives")
STYLE = (
    "body{font:16px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}td,th{padding:.2em .8em;text-align:left}"
)
Tasks = Sequence[Mapping[str, Any]]


def evidence(gains: Iterable[float], margin: float) -> tuple[list[float], list[float]]:
    """Return the log of the wealth of both tests after every pair: "not worse by the margin", and "worse"."""
    not_worse, worse = MeanTest(1.0 - margin), MeanTest(1.0)
    trails: tuple[list[float], list[float]] = ([], [])
    for gain in gains:
        not_worse.add(gain + margin)
        worse.add(-gain)
        trails[0].append(not_worse.log_wealth)
        trails[1].append(worse.log_wealth)
    return trails


def page(verdict: GateVerdict) -> str:
    """Return the verdict as one HTML page without links to anything outside."""
    report = verdict.report
    tasks: Tasks = report["tasks"]
    about = {
        "candidate, sha256": verdict.candidate,
        "drives now, sha256": verdict.approved,
        "environment": verdict.environment,
        "the robot's gap": report.get("on", ""),
        "scenes": f"seeds from {report.get('first_seed', '')} on, the same for both",
        "episodes run": report.get("episodes_run", ""),
        "the safety filter intervened": "in "
        + ", before in ".join(f"{report['breaches'][who] / max(1, report['pairs']):.1%} of the steps" for who in WHO),
        **{
            f"{name}, {i + 1}": f"{(place := WorstCase(**case))}; weights {place.found_by[:12]} were weak there"
            for name, cases in report.get("worst_cases", {}).items()
            for i, case in enumerate(cases)
        },
        **{name.replace("_", " "): value for name, value in report["config"].items()},
        "commit": report.get("commit", ""),
        "machine": report.get("machine", ""),
    }
    rows = [
        (seen["task"], str(seen["pairs"]), *(_rate(seen[who], seen["pairs"]) for who in WHO),
         *(f"{seen[f'{who}_progress'] / max(1, seen['pairs']):.2f}" for who in WHO),
         "shown" if seen["not_worse"] else "worse" if seen["worse"] else "not shown")
        for seen in tasks
    ]  # fmt: skip
    return "\n".join(
        [
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(verdict.decision)}</title>",
            f"<style>{STYLE}</style><h1>{escape(verdict.decision.replace('_', ' '))}</h1>",
            f"<p>{escape(verdict.reason)}</p><h2>Successes and progress in the same scenes</h2>",
            _table(("task", "pairs", "candidate", "drives now", *PROGRESS, "not worse"), rows),
            _picture(tasks, report["config"]),
            "<h2>How it was found</h2>",
            _table(("", ""), [(name, str(value)) for name, value in about.items()]),
            "</html>",
        ]
    )


def write_page(path: Path, verdict: GateVerdict) -> Path:
    """Write the page to ``path``; return it."""
    write_atomic(path, page(verdict).encode())
    return path


def _rate(successes: int, n: int) -> str:
    if n == 0:
        return "not tried"
    rate = wilson(successes, n)
    return f"{100 * rate.rate:.0f} % [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ["".join(f"<th>{escape(word)}</th>" for word in head)]
    cells += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _picture(tasks: Tasks, config: Mapping[str, Any]) -> str:
    """Return the evidence of both tests over the pairs as an SVG, the lines at which they are decided dashed.

    The upper row is of successes, the lower one of progress.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    figure = Figure(figsize=(11, 8), layout="constrained")
    tests = (("not worse by the margin", 1 / config["false_promotion"]),
             ("worse", (2 * len(tasks) + 1) / config["false_rejection"]))  # fmt: skip
    margins = (("successes", "margin"), ("progress", "progress_margin"))
    for place, ((of, margin), (i, (title, bar))) in enumerate(product(margins, enumerate(tests)), 1):
        axes = figure.add_subplot(2, 2, place)
        for seen in tasks:
            gains = [GAIN[outcome] for outcome in seen["outcomes"]] if of == "successes" else seen["gains"]
            trail = evidence(gains, config[margin])[i]
            axes.plot(range(1, len(trail) + 1), [value / math.log(10) for value in trail], label=seen["task"])
        axes.axhline(math.log10(bar), color="black", linestyle="--")
        axes.set(title=f"{of}: evidence that it is {title}", xlabel="pairs of episodes", ylabel="log10 of the wealth")
    axes.legend(fontsize="small")
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "engram"}):  # the same verdict, the same file
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]
