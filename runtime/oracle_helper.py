"""A scripted expert that takes over as a person would: for practice that is helped, and for tests of it.

It knows the simulator's state (``oracle``), and stands for a person who watches. What it does for the policy is one of
``HELP``, in a share of all control steps at most. VLAC (arXiv:2509.15937) has people help in such grades: they
demonstrate what fails, lead back to where it failed, and guide where the policy is stuck.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import HumanAction, Observation
from engram.sim.experts import Expert, ExpertConfig, make_expert
from engram.sim.tasks import TASKS, get_task, task_class
from engram.sim.tasks.base import Task
from engram.sim.world import MujocoWorld

WHO = "oracle"
CALM = ExpertConfig(gain=0.3, speed=0.5, turn_speed=0.3)
"""As a person moves who sees what came of it; at its usual speed an expert swings where commands come late."""
RISE = 0.02
"""A smaller rise of the progress is none."""
STILL_M = 0.01
"""A tool that stays so near to a place stands still."""
BEFORE_LOST = 5
"""So many control steps before it was at its best a failure began."""


@dataclass(frozen=True)
class HelpConfig:
    """How the expert helps, in how many control steps at most, and how well it acts."""

    share: float = 0.1
    """Most control steps of all that it drives, as a share of those until then."""
    patience: float = 0.4
    """Share of an episode's time limit that is the policy's: before the expert finishes, or after it has led the arm to
    where a failure began. It drives only where it may for the rest of the time limit."""
    noise: float = 0.0
    """Standard deviation of what is added to its motions, in action units: a clumsy person."""
    by: str = "finish"
    """What it does: a name in ``HELP``."""
    stuck_steps: int = 12
    """Control steps without progress, or of a tool that stands still, after which it guides."""
    guide_steps: int = 12
    """Control steps for which it then drives; it does so only where it may for all of them."""

    def __post_init__(self) -> None:
        for name in ("share", "patience"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInputError(f"HelpConfig.{name}: {getattr(self, name)}, expected 0..1")
        if not 0.0 <= self.noise < np.inf:
            raise InvalidInputError(f"HelpConfig.noise: {self.noise}, expected 0 or more")
        if self.by not in HELP:
            raise unknown_name("HelpConfig.by", self.by, HELP)
        for name in ("stuck_steps", "guide_steps"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"HelpConfig.{name}: {getattr(self, name)}, expected 1 or more")


@dataclass(frozen=True)
class Scene:
    """An episode that is to be helped."""

    limit: int  # control steps at most
    graded: bool  # its task tells the progress before it is done
    again: bool = False  # the policy failed at it before
    lost_at: float = 0.0  # at this progress that failure began


@dataclass(frozen=True)
class Moment:
    """A control step that the policy is about to drive."""

    step: int  # from 1
    progress: float  # by the simulator
    tool: np.ndarray  # (3,) m
    parked: bool  # the cell holds the arm, whoever drives


class OracleHelp(ABC):
    """Says when the expert drives; it watches anew in every episode, and whenever the expert has handed back."""

    again = False
    """Whether scenes that the policy failed at are practised again, and it helps in these alone."""

    def __init__(self, config: HelpConfig, scene: Scene) -> None:
        self.config, self.scene = config, scene

    @abstractmethod
    def wanted(self, moment: Moment) -> int:
        """Return for how many control steps at most the expert is to drive from ``moment`` on; 0: the policy drives."""

    def is_done(self, progress: float) -> bool:
        """Tell whether the expert hands back although it might drive on."""
        return False


class OracleFinish(OracleHelp):
    """Takes over from a policy that does not get done in its share of the time limit, and drives to the end."""

    def wanted(self, moment: Moment) -> int:
        """Return what is left of the time limit, once."""
        limit = self.scene.limit
        return limit - moment.step + 1 if moment.step == round(self.config.patience * limit) + 1 else 0


class OracleGuide(OracleHelp):
    """Drives a short while where the policy is stuck; from there the policy tries on."""

    def __init__(self, config: HelpConfig, scene: Scene) -> None:
        super().__init__(config, scene)
        self._best, self._rose, self._moved = -np.inf, 0, 0  # the steps at which the progress rose, and the tool moved
        self._place = np.full(3, np.inf)

    def wanted(self, moment: Moment) -> int:
        """Return a short while after many steps without progress, or of a tool that stands still."""
        if moment.parked or not self.scene.graded or moment.progress >= self._best + RISE:
            self._best, self._rose = moment.progress, moment.step
        if moment.parked or not np.linalg.norm(moment.tool - self._place) <= STILL_M:
            self._place, self._moved = moment.tool, moment.step
        if moment.step - min(self._rose, self._moved) < self.config.stuck_steps:
            return 0
        return min(self.config.guide_steps, self.scene.limit - moment.step + 1)


class OracleReturn(OracleHelp):
    """Leads the arm to where a failure began, when the scene is practised again; the policy goes on from there."""

    again = True

    def wanted(self, moment: Moment) -> int:
        """Return what is not the policy's of the time limit, at the first step."""
        if not self.scene.again or moment.step > 1 or self.is_done(moment.progress):
            return 0
        return self.scene.limit - round(self.config.patience * self.scene.limit)

    def is_done(self, progress: float) -> bool:
        """Tell whether the failure began at this ``progress``."""
        return progress >= self.scene.lost_at


class OracleDemonstrate(OracleHelp):
    """Drives a whole episode of a scene that the policy failed at."""

    again = True

    def wanted(self, moment: Moment) -> int:
        """Return the time limit, at the first step."""
        return self.scene.limit if self.scene.again and moment.step == 1 else 0


HELP: dict[str, type[OracleHelp]] = {
    "finish": OracleFinish,
    "guide": OracleGuide,
    "return": OracleReturn,
    "demonstrate": OracleDemonstrate,
}
"""What the expert may do for the policy, by name."""


class OracleHelper:
    """Takes over ``world``'s robot now and then; give it to a :class:`engram.runtime.loop.Runtime` as its human.

    Args:
        world: whose state it knows.
        config: how it helps.
        steps: control steps until now, for practice that goes on.
        helped: those of them that it drove.
    """

    def __init__(self, world: MujocoWorld, config: HelpConfig, steps: int = 0, helped: int = 0) -> None:
        self.config, self.steps, self.helped = config, steps, helped
        self._world = world
        self._expert: Expert | None = None

    @property
    def lost_at(self) -> float:
        """The progress, by the simulator, some steps before the episode was at its best; 0: it began with that."""
        began = int(np.argmax(self._progress or [0.0])) - BEFORE_LOST
        return self._progress[began] if began > 0 else 0.0

    def may_repeat(self, task: str, lost_at: float) -> bool:
        """Tell whether it would help now in a scene of ``task`` that failed at progress ``lost_at``."""
        kind = HELP[self.config.by]
        begin = Moment(1, 0.0, np.zeros(3), parked=False)
        most = kind(self.config, _scene(task, True, lost_at)).wanted(begin) if kind.again else 0
        return most > 0 and self._affords(most, self.steps)

    def begin(self, task: str, seed: int, *, again: bool = False, lost_at: float = 0.0) -> None:
        """Begin an episode of ``task``; ``seed`` draws its noise.

        Args:
            again: it is practised again, as the policy failed at it.
            lost_at: progress at which that failure began.
        """
        self._task, self._scene = task, _scene(task, again, lost_at)
        self._step, self._left = 0, 0
        self._progress: list[float] = []
        self._rng = np.random.default_rng(seed)
        self._hand_back()

    def __call__(self, observation: Observation) -> HumanAction | None:
        """Return what the expert does at this control step; None: the policy drives."""
        running = self._world.task
        assert running is not None
        self._step += 1
        self.steps += 1
        self._progress.append(progress := running.oracle_progress(self._world))
        if self._expert is not None and (not self._left or self._help.is_done(progress)):
            self._hand_back()
        if self._expert is None:
            tool = self._world.tool_pose().position
            self._left = self._help.wanted(Moment(self._step, progress, tool, running.parked))
            if not self._left or not self._affords(self._left, self.steps - 1):
                return None
            self._expert = make_expert(self._task, self._world, CALM)
            self._expert.reset()
        self._left -= 1
        self.helped += 1
        action = self._expert.act()
        action[:6] = np.clip(action[:6] + self.config.noise * self._rng.normal(size=6), -1.0, 1.0)
        return HumanAction(observation.stamp_ns, WHO, True, "ee_delta", action)

    def _hand_back(self) -> None:
        self._expert, self._help = None, HELP[self.config.by](self.config, self._scene)

    def _affords(self, most: int, steps: int) -> bool:
        """Tell whether it may drive ``most`` control steps after ``steps`` of them."""
        return self.helped + most <= self.config.share * (steps + most)


def check_help(config: HelpConfig, task: str) -> None:
    """Raise InvalidInputError where nothing tells where a failure at ``task`` began, and that is what help needs."""
    if config.share and config.by == "return" and not _scene(task, True, 0.0).graded:
        raise InvalidInputError(
            f"HelpConfig.by: return: {task} tells no progress before it is done; expected a task such as "
            f"{', '.join(TASKS)}, or one of {', '.join(name for name in HELP if name != 'return')}"
        )


def _scene(task: str, again: bool, lost_at: float) -> Scene:
    graded = task_class(task).oracle_progress is not Task.oracle_progress
    return Scene(get_task(task).max_steps, graded, again, lost_at)
