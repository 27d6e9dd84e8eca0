"""The boundaries between parts, one abstract class each, at most five methods.

``tests/contracts/`` holds one reusable suite per class; every implementation runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.core.collision import Obstacle
from engram.core.questions import Question, Selection
from engram.core.types import (
    ActionChunk,
    Advice,
    CameraFrame,
    Embodiment,
    Evidence,
    Features,
    GraphUpdate,
    JointCommand,
    Lineage,
    MemoryTokens,
    Observation,
    OracleOutcome,
    Pose,
    Record,
    SceneNode,
    SceneObservation,
)


class Kinematics(ABC):
    """Forward and inverse kinematics of the arm's tool point (between the finger tips) in ``base_link``."""

    @abstractmethod
    def forward(self, positions: np.ndarray) -> Pose:
        """Return the tool pose for arm joint ``positions`` (n,) rad."""

    @abstractmethod
    def inverse(self, target: Pose, start: np.ndarray) -> np.ndarray:
        """Return arm joint positions (n,) rad whose tool pose is nearest to ``target``, searching from ``start``."""

    def link(self, name: str, positions: np.ndarray) -> Pose | None:
        """Return the pose of the link ``name`` in base_link for arm joint ``positions`` (n,) rad; None: not known."""
        return None


Follow = Callable[[np.ndarray], Sequence[np.ndarray]]
"""What the joints do when they are asked for positions (n,): the next command, then each until they are at rest."""


class MotionBarrier(ABC):
    """Keeps the robot apart from itself, its table and obstacles."""

    @abstractmethod
    def limit(self, start: np.ndarray, goal: np.ndarray, follow: Follow) -> np.ndarray | None:
        """Return the joint positions (n,) nearest to ``goal`` that can be asked for; None: there are none.

        They can be if every margin holds on the way that the joints then take from ``start``, until they are at rest.
        Where a margin does not hold at ``start``, the way must not make it smaller. A ``goal`` that is fine comes back
        itself. Positions are those of arm joints [rad] and gripper.
        """

    @abstractmethod
    def set_obstacles(self, obstacles: Sequence[Obstacle]) -> None:
        """Replace the obstacles that were told last; those of the robot's configuration stay.

        Raises InvalidInputError for more than ``obstacles_max``.
        """

    @property
    @abstractmethod
    def obstacles_max(self) -> int:
        """How many obstacles there is room for, besides those of the robot's configuration."""

    @property
    @abstractmethod
    def nearest(self) -> str:
        """Which two things the last call of :meth:`limit` kept apart, as ``one/other``; empty: none."""


StepHook = Callable[[Observation, JointCommand, OracleOutcome], None]
"""Called after each control step of an episode with observation, command and outcome."""


class World(ABC):
    """A simulated or real workcell that executes one joint command per control step."""

    @abstractmethod
    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Set up ``task`` from ``seed`` and return the first observation; empty instruction = drawn from the seed."""

    @abstractmethod
    def step(self, command: JointCommand) -> Observation:
        """Execute ``command`` for one control period and return what the robot then senses."""

    @abstractmethod
    def oracle_outcome(self) -> OracleOutcome:
        """Return the simulator's own verdict on the running task: for rewards and scores only."""

    @abstractmethod
    def close(self) -> None:
        """Free rendering contexts and other resources; may be called twice."""


class ViewableWorld(World):
    """A world that tools such as RViz can watch, also while no episode runs."""

    @abstractmethod
    def rest(self, duration_s: float) -> Observation:
        """Let ``duration_s`` of simulated time pass in which nothing moves; callable before the first reset.

        The episode's verdict, step and number stay as they are.
        """

    @abstractmethod
    def robot_description(self) -> str:
        """Return the robot as URDF, its root link called ``base_link``."""

    @abstractmethod
    def link_poses(self, *, moving: bool) -> Mapping[str, Pose]:
        """Return the pose of links in their parent link (``pose.frame``): of those that move, now, or of the fixed."""


class Detector(ABC):
    """RGB-D frame -> objects."""

    @abstractmethod
    def detect(self, frame: CameraFrame) -> SceneObservation:
        """Return every object found in ``frame``; raises InvalidInputError when it has no depth."""


@dataclass(frozen=True)
class MemoryAnswer:
    """Nodes, best first, with one score each (0..1); a past node is as it was then."""

    nodes: tuple[SceneNode, ...]
    scores: tuple[float, ...]
    text: str = ""  # one sentence
    confidence: float = 0.0  # 0..1, that the sentence is right
    age_s: float = float("inf")  # s between the evidence for the first node and the time that was asked about
    evidence: tuple[Evidence, ...] = ()  # best first
    advice: Advice | None = None  # when the memory is not sure


@dataclass(frozen=True)
class StoreState:
    """The changes of a store since it was last asked for them."""

    changed: tuple[Record, ...] = ()
    removed: tuple[str, ...] = ()  # keys


class MemoryStore(ABC):
    """A store that follows the changes of the scene graph: short-term, episodic, semantic.

    One caller at a time, but changes are taken in on a thread of the store's own: share nothing that is written.
    ``name`` is its name in evidence and on disk.
    """

    name: str

    @abstractmethod
    def update(self, change: GraphUpdate, stamp_ns: int) -> None:
        """Take in the scene graph's changes at ``stamp_ns``; must not block."""

    @abstractmethod
    def recall(self, selection: Selection) -> tuple[Evidence, ...]:
        """Return what fits, best first, at most ``selection.limit``; its vector is set if its text is."""

    @abstractmethod
    def state(self) -> StoreState:
        """Return the rows that changed and the keys that were deleted since the last call; the caller makes them
        durable."""

    @abstractmethod
    def restore(self, records: Sequence[Record]) -> None:
        """Load rows from disk into an empty store; they do not count as changes."""

    @abstractmethod
    def bytes_used(self) -> int:
        """Return the RAM it uses; :meth:`state` brings it below the store's budget."""


class Memory(ABC):
    """The robot's memory of its surroundings. It outlives restarts."""

    @abstractmethod
    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in an observation and return the changes."""

    @abstractmethod
    def query(self, question: Question) -> MemoryAnswer:
        """Return the nodes that answer ``question``, best first, and what that means in words."""

    @abstractmethod
    def context(self, instruction: str, stamp_ns: int) -> MemoryTokens:
        """Return the entries that are relevant for ``instruction``, as tokens for the policy."""

    @abstractmethod
    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        """Return the full graph, ``full=True``, with the current sequence number.

        With ``at_ns``, as it was in the world at that time, by what is known today.
        """

    @abstractmethod
    def commit(self) -> int:
        """Make everything up to now durable and return the sequence number that now survives a crash."""

    # A memory of scenes alone keeps no tasks and leaves out what follows.

    def introduce(self, agent: str, embodiment: Embodiment, stamp_ns: int) -> GraphUpdate:
        """Say what the robot is whose memory this is; return what that changed. Skills come from finished tasks."""
        return GraphUpdate(stamp_ns, self.graph().sequence, False, ())

    def begin_episode(  # noqa: B027 - optional
        self, task: str, instruction: str, stamp_ns: int, under_way: bool = False
    ) -> None:
        """A task begins; one that still runs is abandoned.

        A task that ran when the process before this one ended goes on if its beginning, at the very same ``stamp_ns``,
        is told again. ``under_way``: the task may be that one, ``stamp_ns`` is later than its beginning.
        """

    def end_episode(  # noqa: B027 - optional
        self, task: str, outcome: str, stamp_ns: int, memory_ids: tuple[str, ...] = (), policy_version: str = ""
    ) -> None:
        """The running task ended: succeeded, failed or stopped.

        ``memory_ids`` are the memories that its actions were based on; a stop says nothing of the skill.
        """

    def consolidate(self, budget_s: float) -> None:  # noqa: B027 - optional
        """Update habits and event summaries in the background, for at most about ``budget_s`` of CPU time."""

    @property
    def busy(self) -> bool:
        """Whether a commit would have to wait, for the deletion of old snapshots say; a later one will do then."""
        return False


class Policy(ABC):
    """Instruction and observations -> action chunks.

    ``observe`` is separate from ``act``: it is called at every control step, so that what a policy remembers is
    written at the same rate in training and deployment.
    """

    @abstractmethod
    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode; ``seed`` fixes the sampling noise."""

    @abstractmethod
    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step; a second call with the same stamp changes nothing."""

    @abstractmethod
    def act(self) -> ActionChunk:
        """Return the next chunk, answering the newest observation."""

    @abstractmethod
    def load_weights(self, path: Path, version: str) -> None:
        """Swap to the safetensors file ``path``; raises WeightsError and keeps the old weights if it does not fit."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the weights in use."""

    @property
    def reads_context(self) -> bool:
        """Whether it acts on the ``memory`` that it is given. The caller then waits for memory tokens that are fresh
        enough."""
        return False

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of its weights. None = it has none, takes no other weights, and nothing learns from it."""
        return None

    @property
    def ablation(self) -> str:
        """What its memory is spoilt by, as an experiment; empty = nothing."""
        return ""


class FeaturePolicy(ABC):
    """A policy that tells what it makes of an observation, for a success classifier."""

    @abstractmethod
    def features(self) -> Features | None:
        """Return the features of the newest observation; None: nothing was observed, or it offers none."""


class StatefulPolicy(ABC):
    """A policy whose sequence memory can be saved and restored in another process."""

    @abstractmethod
    def memory_state(self) -> Mapping[str, np.ndarray]:
        """Return the sequence memory since reset; empty = nothing that a restart would lose."""

    @abstractmethod
    def restore_memory(self, arrays: Mapping[str, np.ndarray]) -> None:
        """After reset, continue with what ``memory_state`` returned; InvalidInputError if it does not fit."""

    def remembered(self) -> str:
        """Return a short description of the sequence memory for diagnostics; callable from any thread."""
        return ""
