"""The gate beside a running learner: judges the candidates that it hears of, the newest first, in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from engram.core.child import run_apart
from engram.core.errors import EngramError
from engram.learning.weights.gate_verdict import GateVerdict
from engram.runtime.factories import policy_folder
from engram.validation.following import followed_gap, identify_stored
from engram.validation.gate import GateConfig
from engram.validation.of_learner import GATE, contender, learner_contenders, tasks_of
from engram.validation.trials import NOMINAL
from engram.validation.validate import Progress, validate


class GateOutputs(Protocol):
    """Who is told; called from the gate's thread."""

    def progress(self, version: str, progress: Progress) -> None:
        """More pairs of episodes have been run."""

    def judged(self, version: str, verdict: GateVerdict) -> None:
        """It is decided."""

    def found(self, what: str) -> None:
        """Something was found out of the robot's gap."""

    def failed(self, version: str, error: EngramError) -> None:
        """It could not be judged, and why."""


class _StoppedError(Exception):
    pass


class StandingGate:
    """Judges candidates of the learner in ``folder`` against what drives at that time.

    While one is judged, of those that come only the newest waits. What is stopped in the middle goes on where it was,
    once the version is offered again.

    Args:
        folder: the learner's.
        policy: shipped name or folder of the checkpoint that the learner began with.
        outputs: who is told.
        tasks: by which tasks; empty: all on the checkpoint's card.
        config: how strict.
        on: the gap that the robot has, as :func:`engram.sim.gaps.get_gap` takes it.
        identify: find the gap in the robot's record; what that does not tell is as in ``on``.
        worst_case: so many episodes a task search for a candidate's weakest places first; 0: none does.
        workers: processes that run episodes.
        niceness: how far these yield to other processes (Unix nice).

    Raises:
        UnknownNameError: there is no such checkpoint.
        InvalidInputError: it has no weights, or its card names no task.
    """

    def __init__(
        self,
        folder: Path,
        policy: str,
        outputs: GateOutputs,
        *,
        tasks: Sequence[str] = (),
        config: GateConfig | None = None,
        on: str = NOMINAL,
        identify: bool = False,
        worst_case: int = 0,
        workers: int = 1,
        niceness: int = 19,
    ) -> None:
        self._folder, self._outputs = folder, outputs
        self._began = contender(policy_folder(policy))
        self.tasks = tuple(tasks) or tasks_of(self._began)
        self._config, self._on, self._identify, self._worst_case = config, on, identify, worst_case
        self._workers, self._niceness = workers, niceness
        self._changed = threading.Condition()
        self._wanted, self._stopped = "", False
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    def start(self) -> None:
        """Begin to judge what is offered."""
        self._thread.start()

    def offer(self, version: str) -> None:
        """Judge ``version`` next, in place of any that waits."""
        with self._changed:
            self._wanted = version
            self._changed.notify()

    def stop(self, timeout_s: float = 60.0) -> bool:
        """Stop after the episodes that run now; tells whether that took less than ``timeout_s``."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                version, self._wanted = self._wanted, ""
            try:
                self._outputs.judged(version, self._judge(version))
            except _StoppedError:
                return
            except EngramError as error:
                self._outputs.failed(version, error)

    def _judge(self, version: str) -> GateVerdict:
        def check() -> None:
            if self._stopped:
                raise _StoppedError

        _, candidate, drives = learner_contenders(self._folder, self._began, version)
        gate, on = self._folder / GATE, self._on
        if self._identify:
            find = partial(run_apart, identify_stored, check=check, niceness=self._niceness)
            on = followed_gap(gate, self._folder / "experience", on, self._outputs.found, find)
        return validate(
            *(candidate, drives, self.tasks, gate, self._config),
            on=on,
            workers=self._workers,
            niceness=self._niceness,
            worst_case=self._worst_case,
            told=lambda progress: self._outputs.progress(version, progress),
            check=check,
        )
