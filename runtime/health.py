"""What a node knows of its own condition: counters, stage times, problems. Safe to use from any thread."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

OK, WARN, ERROR = LEVELS = ("ok", "warn", "error")
"""How bad a condition is, the better first."""
PROBLEM_TTL_S = 5.0
"""A problem that did not occur again for this long is no longer the node's state, only its history."""
DROPS = " drops"
"""How the names of counters end that count what found a full queue and was passed over."""
STAGE_TIMES = " ms p50/p99"
"""How the names of values end that tell how long a stage takes."""
TRACED = 1_000_000
"""Events that a trace holds at most, the newest."""
SAMPLES = 4096
"""Stage times that are kept for the percentiles."""


LONGEST_TEXT = 400
"""Of a problem, in characters."""
TOPIC = "/diagnostics"
"""Not in the robot's namespace: diagnostic_aggregator and rqt listen there. The nodes' full names tell robots apart."""


def own_name(status_name: str, namespace: str) -> str | None:
    """Return the node's name without ``namespace``, or None for the status of a node in another namespace."""
    space, _, name = status_name.rpartition("/")
    return name if space == namespace.rstrip("/") else None


@dataclass(frozen=True)
class Condition:
    """What a node says of itself: one line of ``/diagnostics``."""

    level: str  # of LEVELS
    message: str
    values: Mapping[str, str] = field(default_factory=dict)


def drops_by_queue(conditions: Mapping[str, Condition]) -> dict[str, int]:
    """Return what found a full queue and was passed over: "node: whose queue" -> how many, without the zeros."""
    found = {}
    for node, said in conditions.items():
        for key, value in said.values.items():
            if key.endswith(DROPS) and value != "0":
                found[f"{node}: {key.removesuffix(DROPS)}"] = int(value)
    return found


def sendable(text: str) -> str:
    """Return ``text`` without halves of surrogate pairs, as JSON and file names may have them: ROS sends none."""
    return text.encode("utf-8", "replace").decode()


class Health:
    """Counters, latency percentiles and current problems of one node."""

    def __init__(self, trace_file: str = "") -> None:
        self.counts: Counter[str] = Counter()
        self.last_problem = ""
        self._lock = threading.Lock()
        self._stages: dict[str, deque[float]] = {}
        self._problems: dict[str, tuple[str, str, float]] = {}  # key -> level, text, monotonic end
        self._notes: dict[str, str] = {}
        self._trace_file = trace_file
        self._trace: deque[tuple[str, int, int]] = deque(maxlen=TRACED)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self.counts[name] += amount

    def note(self, key: str, text: str) -> None:
        """Show a fact, such as a version, in the diagnostics; an empty ``text`` takes it away."""
        with self._lock:
            if text:
                self._notes[key] = sendable(text)
            else:
                self._notes.pop(key, None)

    def problem(self, key: str, text: str, level: str = WARN, *, lasting: bool = False) -> None:
        """Note a problem; a later one with the same ``key`` replaces it. ``lasting`` ones stay until cleared.

        A text may repeat what a stranger sent: it is cut after ``LONGEST_TEXT`` characters.
        """
        text = sendable(text)
        if len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]} ..."
        until = float("inf") if lasting else time.monotonic() + PROBLEM_TTL_S
        with self._lock:
            self._problems[key] = (level, text, until)
            self.counts[f"problems {key}"] += 1
            self.last_problem = f"{key}: {text}"

    def clear(self, key: str) -> None:
        """A problem is over."""
        with self._lock:
            self._problems.pop(key, None)

    def seconds(self, stage: str, duration_s: float) -> None:
        """Add one duration [s] of ``stage``."""
        with self._lock:
            self._stages.setdefault(stage, deque(maxlen=SAMPLES)).append(duration_s)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Time a block as ``stage``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds(stage, time.perf_counter() - start)

    def trace(self, event: str, stamp_ns: int) -> None:
        """Note when (monotonic ns) ``event`` happened for the control step at ``stamp_ns``; off without a file."""
        if self._trace_file:
            self._trace.append((event, stamp_ns, time.monotonic_ns()))

    def percentiles(self) -> dict[str, tuple[float, float, int]]:
        """Return p50 [ms], p99 [ms] and number of samples of every stage."""
        with self._lock:
            stages = {name: np.array(times) for name, times in self._stages.items() if times}
        return {name: (*(1e3 * np.percentile(times, (50, 99))).tolist(), len(times)) for name, times in stages.items()}

    def condition(self, state: str) -> Condition:
        """Return the condition of a node in this lifecycle ``state``; its level is that of the worst problem."""
        now = time.monotonic()
        with self._lock:
            self._problems = {key: p for key, p in self._problems.items() if p[2] > now}
            problems = sorted(self._problems.items(), key=lambda item: LEVELS.index(item[1][0]), reverse=True)
            counts, last, notes = sorted(self.counts.items()), self.last_problem, dict(self._notes)
        message = "; ".join(f"{key}: {text}" for key, (_, text, _) in problems) or state
        values = {"state": state, **notes} | ({"last problem": last} if last else {})
        values |= {key: str(count) for key, count in counts}
        for stage, (p50, p99, n) in sorted(self.percentiles().items()):
            values[f"{stage}{STAGE_TIMES}"] = f"{p50:.2f}/{p99:.2f} (n={n})"
        return Condition(problems[0][1][0] if problems else OK, message, values)

    def write_trace(self) -> None:
        """Write the traced events as JSON lines."""
        if not self._trace_file:
            return
        path = Path(self._trace_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as out:
            for event, stamp_ns, at_ns in self._trace:
                out.write(json.dumps({"event": event, "stamp_ns": stamp_ns, "at_ns": at_ns}) + "\n")
