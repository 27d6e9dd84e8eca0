"""Reads the nodes' trace files: the time of each stage of each control step.

Every node writes JSON lines ``{"event", "stamp_ns", "at_ns"}``; ``at_ns`` is the machine's monotonic clock, the same
in all processes, ``stamp_ns`` names the control step.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from engram.core.errors import DAMAGED, InvalidInputError


def read_trace(path: Path) -> dict[str, dict[int, int]]:
    """Return, for each event and each control step's stamp [ns], the time at which it first happened [ns]."""
    events: dict[str, dict[int, int]] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            entry = json.loads(line)
            events.setdefault(entry["event"], {}).setdefault(int(entry["stamp_ns"]), int(entry["at_ns"]))
        except DAMAGED as error:
            raise InvalidInputError(f"{path}:{number}: {line[:80]!r}: {error}") from None
    return events


def stage_ms(begin: dict[int, int], end: dict[int, int]) -> np.ndarray:
    """Return the times [ms] between two events of the same step, for steps that have both, in order of the steps."""
    return np.array([(end[s] - begin[s]) / 1e6 for s in sorted(begin.keys() & end.keys()) if end[s] >= begin[s]])


def camera_to_command_ms(folder: Path) -> np.ndarray:
    """Return, for every control step, the wall clock [ms] from the camera's stamp to the command that answers it."""
    traces = [folder / "sim_node.jsonl", folder / "safety_node.jsonl"]
    if not all(path.is_file() for path in traces):
        return np.zeros(0)
    shown, sent = (read_trace(path) for path in traces)
    return stage_ms(shown.get("show", {}), sent.get("command sent", {}))
