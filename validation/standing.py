"""The gate beside a running learner: judges the candidates that it hears of, the newest first, in its own thread.

In between it lets the policy practise in the same simulation, if that is wanted (:mod:`engram.validation.practising`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from engram.core.child import run_apart
from engram.core.errors import EngramError, InvalidInputError, StoreError
from engram.core.registry import make_robot
from engram.learning.experience.reader import ExperienceReader, experience_file
from engram.learning.weights.gate_verdict import GateVerdict
from engram.learning.weights.library import WeightsLibrary
from engram.learning.workspace import EXPERIENCE
from engram.runtime.factories import policy_folder
from engram.runtime.parameters.gate import GateNodeConfig
from engram.sim.gaps import get_gap
from engram.sim.tasks import expand
from engram.validation.following import followed_gap, identify_stored, keep_judged_on
from engram.validation.gate import GateConfig
from engram.validation.of_learner import GATE, contender, learner_contenders, tasks_of, with_taught
from engram.validation.practising import PracticeJob, asked_lately, nothing_to_do, practise
from engram.validation.trials import NOMINAL
from engram.validation.validate import Progress, validate

LOOKS_EVERY_S, AFTER_FAILURE_S = 5.0, 60.0
"""How often it is looked whether there is something to practise, and how long nothing is after practice failed [s]."""


MORE = 3
"""Where a robot's record did not tell how it differs, so many episodes later it may."""


SIMULATED = "panda_2f85"
"""The robot on whose tabletop candidates are tried, by its name; how a robot of this kind differs, its record tells."""


class GateOutputs(Protocol):
    """Who is told; called from the gate's thread."""

    def progress(self, version: str, progress: Progress) -> None:
        """More pairs of episodes have been run."""

    def judged(self, version: str, verdict: GateVerdict) -> None:
        """It is decided."""

    def found(self, what: str) -> None:
        """Something was found out of the robot's gap."""

    def practised(self, what: str) -> None:
        """Something was practised in simulation, or it is told why nothing is."""

    def passed_over(self, error: EngramError) -> None:
        """Something that the learner was taught cannot be tried, and how to mend that; the rest is judged."""

    def failed(self, version: str, error: EngramError) -> None:
        """It could not be judged, and why."""


class _StoppedError(Exception):
    pass


class _WantedError(Exception):
    """A candidate is to be judged: practice ends."""


class StandingGate:
    """Judges candidates of the learner in ``folder`` against what drives at that time.

    While one is judged, of those that come only the newest waits. What is stopped in the middle goes on where it was,
    once the version is offered again.

    Args:
        folder: the learner's.
        policy: shipped name or folder of the checkpoint that the learner began with.
        outputs: who is told.
        tasks: by which tasks or suites; empty: all on the checkpoint's card. What the learner was taught since counts,
            too.
        config: how strict.
        on: the gap that the robot has, as :func:`engram.sim.gaps.get_gap` takes it.
        identify: find the gap in the robot's record; what that does not tell is as in ``on``.
        worst_case: so many episodes a task search for a candidate's weakest places first; 0: none does.
        practise: while nothing is judged, search in simulation for corrections of the policy's motions, first at what
            the robot was asked for lately.
        workers: processes that run episodes.
        ray: address of a Ray cluster that runs a candidate's in their place; empty: none.
        niceness: how far these yield to other processes (Unix nice).

    Raises:
        UnknownNameError: there is no such checkpoint, or no such task.
        InvalidInputError: it has no weights, or its card names no task or one that does not exist.
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
        practise: bool = False,
        workers: int = 1,
        ray: str = "",
        niceness: int = 19,
    ) -> None:
        self._folder, self._outputs = folder, outputs
        self._began = contender(policy_folder(policy))
        self.tasks = tuple(dict.fromkeys(expand(tasks))) or tasks_of(self._began)
        self._config, self._on, self._identify, self._worst_case = config, on, identify, worst_case
        self._workers, self._ray, self._niceness, self._practises = workers, ray, niceness, practise
        self._told = ""  # of practice
        self._untold = 0  # number of the robot's episode from which on it is looked again how the robot differs
        self._changed = threading.Condition()
        self._wanted, self._stopped = "", False
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    def start(self) -> None:
        """Begin to judge what is offered."""
        self._thread.start()

    def offer(self, version: str) -> None:
        """Judge ``version`` next, in place of any that waits.

        Raises:
            UnknownNameError: the learner does not know it; it takes no other's place.
            WeightsError: nor does one whose manifest is damaged.
        """
        with self._changed:
            if self._wanted:
                with suppress(StoreError):  # then nothing can be told, nor judged
                    WeightsLibrary(self._folder / "weights", read_only=True).manifest(version)
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
        wait_s = LOOKS_EVERY_S if self._practises else None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped, wait_s)
                if self._stopped:
                    return
                version, self._wanted = self._wanted, ""
            try:
                if version:
                    self._outputs.judged(version, self._judge(version))
                else:
                    wait_s = self._try_to_practise()
            except _WantedError:
                continue
            except _StoppedError:
                return
            except EngramError as error:
                self._outputs.failed(version, error)
            except Exception as error:  # noqa: BLE001, such as a full disk: the thread lives on
                self._outputs.failed(version, EngramError(f"{type(error).__name__}: {error}"))

    def _judge(self, version: str) -> GateVerdict:
        def check() -> None:
            if self._stopped:
                raise _StoppedError

        _, candidate, drives = learner_contenders(self._folder, self._began, version)
        on = self._followed(self._outputs.found, check)
        keep_judged_on(self._folder / GATE, on)
        tasks = with_taught(self.tasks, self._folder, self._outputs.passed_over)
        return validate(
            *(candidate, drives, tasks, self._folder / GATE, self._config),
            on=on,
            workers=self._workers,
            ray=self._ray,
            niceness=self._niceness,
            worst_case=self._worst_case,
            told=lambda progress: self._outputs.progress(version, progress),
            check=check,
        )

    def _followed(self, told: Callable[[str], None], check: Callable[[], None]) -> str:
        """Return the gap that the robot has, by its record if that is to be asked."""
        if not self._identify:
            return self._on
        find = partial(run_apart, identify_stored, check=check, niceness=self._niceness)
        return followed_gap(self._folder / GATE, self._folder / EXPERIENCE, self._on, told, find)

    def _try_to_practise(self) -> float | None:
        """Practise for a while; return when to do so again [s], None: never."""
        try:
            self._practise()
        except (_StoppedError, _WantedError):
            raise
        except InvalidInputError as error:  # it would be the same again
            self._tell(f"cannot practise: {error}")
            return None
        except Exception as error:  # noqa: BLE001, such as a full disk
            self._tell(f"cannot practise: {error if isinstance(error, EngramError) else repr(error)}")
            return AFTER_FAILURE_S
        return LOOKS_EVERY_S

    def _practise(self) -> None:
        """Practise for a while, until a candidate is to be judged."""

        from engram.policies.source import Source

        def check() -> None:
            if self._stopped:
                raise _StoppedError
            if self._wanted:
                raise _WantedError

        if not experience_file(self._folder / EXPERIENCE).exists():
            self._tell("waits: the robot has not been asked for anything yet")
            return
        known = max((info.number for info in ExperienceReader(self._folder / EXPERIENCE).catalogue()), default=0)
        if known < self._untold:
            return  # how the robot differs was not to be told, and little has been added
        if not known:
            self._tell("waits: no goal of the robot has ended yet")
            return
        asked = asked_lately(self._folder / EXPERIENCE, self.tasks)
        if not asked:
            self._tell(f"waits: of what the robot was asked for, nothing is one of {', '.join(self.tasks)}")
            return
        on = self._followed(self._tell, check)
        if self._identify and on == self._on:
            self._untold = known + MORE  # looking takes a core some seconds, which the robot needs
            return
        wanted = tuple(dict.fromkeys((*asked, *self.tasks)))  # the gate judges all of them
        together = Source(self._began.checkpoint).type() != "engram_vla"  # else each goal may have its own
        job = PracticeJob(self._folder, self._began.checkpoint, get_gap(on), wanted, together=together)
        if why := nothing_to_do(job):
            self._tell(why)
            return
        done = run_apart(practise, job, check=check, niceness=self._niceness)
        if done.episodes:
            self._tell(str(done))

    def _tell(self, what: str) -> None:
        if what != self._told:
            self._told = what
            self._outputs.practised(what)


def standing_gate(config: GateNodeConfig, outputs: GateOutputs) -> StandingGate:
    """Return the gate of a node with these parameters.

    Raises:
        InvalidInputError: nothing can be simulated of this robot or policy.
        UnknownNameError: there is no such checkpoint.
    """
    manual = "; set promote: manual of the learner, and try candidates yourself"
    if make_robot(config.robot).name != SIMULATED:  # with cameras of its own it is one all the same
        raise InvalidInputError(f"robot {config.robot!r}: the gate simulates a {SIMULATED} alone{manual}")
    if ":" in config.policy:
        raise InvalidInputError(f"policy {config.policy!r} is no checkpoint{manual}")
    return StandingGate(
        Path(config.folder.replace("{robot_id}", config.robot_id)).expanduser(),
        config.policy,
        outputs,
        tasks=tuple(filter(None, config.tasks)),
        config=GateConfig(budget=config.budget),
        on=config.on,
        identify=config.identify,
        worst_case=config.worst_case,
        practise=config.practise,
        workers=config.workers,
        ray=config.ray,
        niceness=0,  # its processes have the node's already
    )
