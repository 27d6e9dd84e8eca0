"""How every benchmark ends: its report as a file, and as the last line on standard output."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engram.core.provenance import commit

RESULTS = Path(__file__).resolve().parent / "results"
"""The figures that the documents quote: written by whole runs only."""


def result_file(output: Path, quick: bool) -> Path:
    """Return where a run writes: ``output``, but a quick one goes to ``runs/bench`` and leaves quoted figures alone."""
    return Path("runs/bench") / output.name if quick and output.resolve().parent == RESULTS else output


def save_report(output: Path, benchmark: str, where: str, config: Any = None, **content: Any) -> None:
    """Write the report of ``benchmark`` to ``output`` and print it as one line of JSON.

    Args:
        output: the file; see :func:`result_file` for quick runs.
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
    report |= {"commit": commit(), "machine": where}
    output = result_file(output, bool(getattr(config, "quick", False)))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
