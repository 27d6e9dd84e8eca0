"""The gate's report on a candidate, task by task. It comes over the network: what is malformed is left out."""

from __future__ import annotations

import json
from typing import Any

from engram.viewer.values import TaskFound

TASKS_SHOWN = 64
"""Tasks that are shown of one report."""
COUNTS = ("pairs", "candidate", "approved")


def read_report(text: str) -> tuple[TaskFound, ...]:
    """Return what ``report_json`` of a verdict says of each task; nothing of what is no report.

    >>> read_report('{"tasks": [{"task": "stack", "pairs": 40, "candidate": 31, "approved": 20, "not_worse": true}]}')
    (TaskFound(task='stack', pairs=40, candidate=31, approved=20, decision='not worse'),)
    >>> read_report("[" * 100000), read_report('{"tasks": 3}')
    ((), ())
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    tasks = report.get("tasks") if isinstance(report, dict) else None
    found = [_task(one) for one in tasks[:TASKS_SHOWN]] if isinstance(tasks, list) else []
    return tuple(one for one in found if one is not None)


def _task(seen: Any) -> TaskFound | None:
    if not isinstance(seen, dict) or not isinstance(seen.get("task"), str):
        return None
    counts = [count for count in map(seen.get, COUNTS) if type(count) is int and count >= 0]
    if len(counts) != len(COUNTS):
        return None
    pairs, candidate, approved = counts
    decision = "worse" if seen.get("worse") is True else "not worse" if seen.get("not_worse") is True else "not shown"
    return TaskFound(seen["task"], pairs, candidate, approved, decision)
