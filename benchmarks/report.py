"""How every benchmark ends: its report as a file, and as the last line on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engram.core.provenance import command_line, commit

RESULTS = Path(__file__).resolve().parent / "results"
"""The figures that the documents quote: written by whole runs only."""
COMMIT = commit()
"""The code that was imported: another commit may be made while a benchmark runs."""


def figure(
    name: str,
    value: float,
    n: int,
    interval: Sequence[float] | None = None,
    target: str | None = None,
    met: bool | None = None,
    digits: int = 3,
    **more: Any,
) -> dict[str, Any]:
    """Return a row of a report: ``value`` and its 95 % ``interval`` rounded, from ``n`` samples, beside its target.

    ``met`` says whether the target was met; None where there is none. ``more`` is told after it.
    """
    ends = None if interval is None else [round(float(end), digits) for end in interval]
    return {"name": name, "value": round(value, digits), "interval": ends, "n": n, "target": target, "met": met, **more}


def slug(words: str) -> str:
    """Return ``words`` as the name of a figure has them."""
    return words.replace(",", "").replace(" ", "_")


def result_file(output: Path, quick: bool, figures: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Return where a run writes: ``output``, but part of a run goes to ``runs/bench`` and leaves quoted figures alone.

    A quick run is a part, and so is one whose ``figures`` lack one that is quoted, or rest on fewer samples (``n``).
    """
    if output.resolve().parent != RESULTS:
        return output
    return Path("runs/bench") / output.name if quick or _lacks(figures, output) else output


def _lacks(figures: Sequence[Mapping[str, Any]], output: Path) -> list[str]:
    """Return the names of the figures in ``output`` that ``figures`` lack, or have with a tenth less samples."""
    if not output.is_file():
        return []
    samples = {figure["name"]: figure.get("n") or 0 for figure in figures}
    quoted = json.loads(output.read_text()).get("figures", [])
    return [f["name"] for f in quoted if f["name"] not in samples or samples[f["name"]] < 0.9 * (f.get("n") or 0)]


def save_report(output: Path, benchmark: str, where: str, config: Any = None, **content: Any) -> None:
    """Write the report of ``benchmark`` to ``output`` and print it as one line of JSON.

    Args:
        output: the file; see :func:`result_file` for parts of a run.
        benchmark: the name under which ``engram bench`` runs it.
        where: what :func:`engram.core.provenance.machine` said before the measurement, with the load of that time.
        config: the benchmark's own dataclass, shown without its ``output``; ``quick``, where it has that, tells whether
            the run was a quick one.
        content: the figures, and whatever else a reader needs to repeat them.
    """
    report: dict[str, Any] = {"benchmark": benchmark, **content}
    if config is not None:
        fields = asdict(config)
        report["config"] = {k: str(v) if isinstance(v, Path) else v for k, v in fields.items() if k != "output"}
    report |= {"command": command_line(), "commit": COMMIT, "machine": where}
    written = result_file(output, bool(getattr(config, "quick", False)), content.get("figures", ()))
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(json.dumps(report, indent=1) + "\n")
    kept = "" if written == output else f"; {output} is kept: this run is only a part of it"
    print(f"written to {written}{kept}", file=sys.stderr)
    print(json.dumps(report))
