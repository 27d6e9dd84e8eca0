"""The committed result files, ``benchmarks/results/*.json``, and how their numbers are written in the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.benchmarks.report import RESULTS

NOT_RECORDED = "not recorded"
"""Stands for whatever a result file does not say. Nothing is ever filled in by hand."""


@dataclass(frozen=True)
class ResultFile:
    """One result file.

    ``engram eval --output`` writes rates per task under ``per_task`` and ``mean``; a benchmark writes a list of rows
    under ``figures`` (see :func:`engram.benchmarks.report.figure`).
    """

    name: str
    """File name without ``.json``."""
    content: Mapping[str, Any]

    @property
    def figures(self) -> dict[str, Mapping[str, Any]]:
        """The rows of a benchmark, by name, in the order of the file; empty for an evaluation."""
        return {row["name"]: row for row in self.content.get("figures", [])}

    def figure(self, name: str) -> Mapping[str, Any]:
        """Return one row of a benchmark; an empty one, shown as missing, where the file has none of that name."""
        return self.figures.get(name, {})

    @property
    def command(self) -> str:
        """The command line that wrote the file, where it was recorded; ``engram eval`` leaves its first word out."""
        recorded = str(self.content.get("command") or "")
        if not recorded:
            return NOT_RECORDED
        return f"`engram {recorded}`" if recorded.startswith("eval ") else f"`{recorded}`"

    @property
    def commit(self) -> str:
        """The commit of the code, 7 digits; ``+`` says that tracked files had been changed since."""
        recorded = str(self.content.get("commit") or self.content.get("card", {}).get("commit") or "")
        changed = "+" if recorded.endswith("+") else ""
        return f"`{recorded.rstrip('+')[:7]}{changed}`" if recorded else NOT_RECORDED

    @property
    def seeds(self) -> str:
        """The seeds, wherever the file keeps them: of its own, or in the benchmark's configuration."""
        own = self.content.get("seeds", self.content.get("seed"))
        of_eval = "per_task" in self.content or "unswapped" in self.content  # the latter with --swap
        if isinstance(own, list) and of_eval:  # first seed, number of seeds
            return f"{own[0]}-{own[0] + own[1] - 1} for each task"
        if isinstance(own, list):
            return f"{own[0]}-{own[-1]}" if len(own) > 1 else str(own[0])
        if own is not None:
            return str(own)
        config = self.content.get("config") or {}
        words = {"seed": "{}", "first_seed": "from {}", "seeds": "{} seeds"}
        return ", ".join(text.format(config[key]) for key, text in words.items() if key in config) or NOT_RECORDED

    @property
    def machine(self) -> str:
        """The machine, with the load at the start of the measurement where it was recorded."""
        return str(self.content.get("machine") or NOT_RECORDED)


def load_results(folder: Path = RESULTS) -> dict[str, ResultFile]:
    """Return every result file in ``folder`` by name."""
    return {path.stem: ResultFile(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def percent(row: Mapping[str, Any], digits: int = 1) -> str:
    """Return a rate with its 95 % interval, in percent; a dash where the row is missing.

    ``row`` is a row of a benchmark (``value``, ``interval``) or of an evaluation (``rate``, ``low``, ``high``).
    """
    value = row.get("rate", row.get("value"))
    if value is None:
        return "–"
    ends = [row["low"], row["high"]] if "low" in row else row.get("interval")
    written = f"{100 * value:.{digits}f} %"
    return f"{written} [{100 * ends[0]:.{digits}f}, {100 * ends[1]:.{digits}f}]" if ends else written


def short(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the point.

    >>> short(0.12345), short(57537.9), short(2.0)
    ('0.123', '57,538', '2')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def number(row: Mapping[str, Any], unit: str = "") -> str:
    """Return a value with its 95 % interval and ``unit``; a dash where the row is missing."""
    if row.get("value") is None:
        return "–"
    ends = row.get("interval")
    written = short(row["value"])
    if ends:
        written += f" [{short(ends[0])}, {short(ends[1])}]"
    return f"{written} {unit}".rstrip()


def samples(*rows: Mapping[str, Any]) -> str:
    """Return the number of samples of the rows that are there, each different number once."""
    counts = [row["n"] for row in rows if row.get("n") is not None]
    return ", ".join(f"{n:,}" for n in dict.fromkeys(counts)) or "–"


def target(row: Mapping[str, Any]) -> str:
    """Return the target of a row and whether it was met; empty where there is none."""
    if row.get("target") in (None, ""):
        return ""
    met = {True: "met", False: "**missed**", None: "not judged"}[row.get("met")]
    return f"{row['target']}: {met}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, with an empty line after it."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows), ""]
