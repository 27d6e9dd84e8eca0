"""What a goal of ``execute_task`` leads to: it joins an episode, begins one, or is refused with the reason. No ROS."""

from __future__ import annotations

from dataclasses import dataclass

from engram.core.declared import check_named
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import EpisodeStatus
from engram.core.words import check_words
from engram.runtime.safety_notes import REFUSED_WHILE_STOPPED


@dataclass(frozen=True)
class GoalRequest:
    """What the client asked for: words of at most ``WORDS_MAX`` characters."""

    instruction: str
    task: str = ""  # "" = the words decide
    episode: int = 0  # 0 = the current one, or a new one

    def __post_init__(self) -> None:
        check_words("instruction", self.instruction)
        check_words("task", self.task)


@dataclass(frozen=True)
class JoinEpisode:
    """Do it in an episode that runs, or that is about to begin."""

    episode: int


@dataclass(frozen=True)
class BeginEpisode:
    """Begin an episode of ``task`` first; "" = the simulation's current task."""

    task: str


@dataclass(frozen=True)
class SimulatedTasks:
    """The words of simulated tasks. Imported on first use: the tasks bring the simulator with them."""

    own: tuple[str, ...] = ()
    """Tasks of the user's own, ``package.module:attribute``, whose words are understood too."""

    def check(self, task: str, instruction: str) -> None:
        """Raise InvalidInputError unless ``instruction`` is a wording of ``task``; UnknownNameError if none is.

        Both come over the network: a module that the launch did not name is not imported.
        """
        check_named("task", task, self.own)
        from engram.sim.tasks import get_task

        get_task(task).parse(instruction)

    def find(self, instruction: str, current: str) -> str:
        """Return the task that ``instruction`` is a wording of, ``current`` first; InvalidInputError has examples."""
        from engram.sim.tasks import task_for

        first = (current,) if current in self.own else ()
        return task_for(instruction, (*first, *self.own))


@dataclass(frozen=True)
class GoalRules:
    """How goals are treated in simulation.

    Args:
        check_instructions: words must be a wording of a simulated task, which they then choose.
        tasks: the words of those tasks.
    """

    check_instructions: bool
    tasks: SimulatedTasks

    def plan(self, request: GoalRequest, status: EpisodeStatus | None, stopped: bool) -> JoinEpisode | BeginEpisode:
        """Say what ``request`` leads to.

        Args:
            status: the newest one of the simulation; None = there is none yet.
            stopped: whether the safety node's stop is latched.

        Raises:
            EngramError: the goal is refused, and why.
        """
        check_goal(request, stopped)
        if request.episode:
            return self._join_named(request, status)
        if request.task:
            self._check(request.task, request.instruction)
            return BeginEpisode(request.task)
        if status is not None and status.running and self._fits(status.task, request.instruction):
            return JoinEpisode(status.episode)
        if self.check_instructions:
            return BeginEpisode(self.tasks.find(request.instruction, status.task if status is not None else ""))
        return BeginEpisode("")

    def _join_named(self, request: GoalRequest, status: EpisodeStatus | None) -> JoinEpisode:
        current = status.episode if status is not None else 0
        if request.episode < current:
            raise InvalidInputError(f"episode {request.episode} is over: the newest is episode {current}")
        known = status.task if status is not None and request.episode == current else ""
        if task := request.task or known:
            self._check(task, request.instruction)
        return JoinEpisode(request.episode)

    def _check(self, task: str, instruction: str) -> None:
        if self.check_instructions:
            self.tasks.check(task, instruction)

    def _fits(self, task: str, instruction: str) -> bool:
        if not task or not self.check_instructions:
            return True
        try:
            self.tasks.check(task, instruction)
        except (InvalidInputError, UnknownNameError):  # other words, or a task that the launch did not name
            return False
        return True


def check_goal(request: GoalRequest, stopped: bool) -> None:
    """Raise InvalidInputError for a goal that no robot can take."""
    if not request.instruction.strip():
        raise InvalidInputError("instruction: empty, expected words")
    if stopped:
        raise InvalidInputError(REFUSED_WHILE_STOPPED)
