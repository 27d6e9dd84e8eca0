"""What the robot's memory is told, and what is published of it. No ROS in here; one thread calls it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engram.core.contracts import Memory
from engram.core.errors import EngramError
from engram.core.geometry import from_frame, scene_in_frame
from engram.core.stamped_buffer import StampedBuffer, clock_restarted
from engram.core.types import (
    MOST_OBJECTS,
    ActionChunk,
    Embodiment,
    EpisodeStatus,
    GraphUpdate,
    Hand,
    MemoryTokens,
    Pose,
    SceneObservation,
    Verdict,
)
from engram.core.words import check_words
from engram.learning.rewards.memory_verdict import MemoryVerdict, MemoryVerdictConfig
from engram.runtime.episode_follower import EpisodeFollower
from engram.runtime.episode_judge import EpisodeJudge
from engram.runtime.monitor import Monitor
from engram.runtime.stamp_guard import StampGuard

KEPT = 64
"""Statuses kept for the scene of their instant."""
MAX_WAITING = 8
"""Instants whose scenes wait for tf, and scenes of one instant; beyond it the first is given up, and diagnostics say
so."""

WAITED_S = 3.0
"""Diagnostics say what tf lacks when a scene waits for longer and none after it could be placed [s]."""

FULL_S = 2.0
"""Least time between two full graphs for readers that ask [s]; twice as long each time that nothing changed meanwhile:
memory/graph keeps each for late readers, and a reader that refuses one would ask for ever."""
FULL_MAX_S = 30.0
"""It grows no longer than this [s]: a reader that lost a change, and holds the robot, waits no longer either."""

RUNNING_NS = 3600 * 10**9
"""A goal that began longer ago is none that runs now: somebody plays a recording [ns]."""

MAX_CAMERAS = 16
"""Cameras that the robot's profile names at most."""

Arrived = tuple[SceneObservation, float]
"""A scene and when it was received [monotonic s]."""


@dataclass(frozen=True)
class MemoryFeedConfig:
    """Whose memory it is, and where its places are."""

    robot_id: str = "robot0"
    lockstep: bool = False
    """A context carries the words of the very step of its scene; otherwise the newest words."""
    frame: str = "base_link"
    """Frame of every place in the memory."""
    base_sigma_m: float = 0.015
    """Standard deviation of the robot's own place in ``frame`` [m]."""
    consolidation_s: float = 0.05
    """CPU time for consolidation at each commit [s]."""


class MemoryFeed:
    """Takes scenes, statuses and chunks into a memory; publishes changes and one context for each scene.

    Args:
        memory: who remembers.
        body: of the robot whose memory it is, without its cameras: those are told by what they see.
        config: whose memory it is.
        lookup: gives the pose of a frame in a target frame at a stamp, as :meth:`TransformBuffer.lookup`.
        publish_change: takes what changed in the graph; called with the sequence numbers in order, and with
            the whole graph under its last number where somebody asks for it.
        publish_context: takes the context of a scene, with places in base_link.
        monitor: takes counters, times and problems.
        now_ns: the clock of the stamps; what is stamped far from it is refused and counted.
        publish_verdict: takes what the memory thinks, after each scene, of how the running episode goes.
    """

    def __init__(
        self,
        memory: Memory,
        body: Embodiment,
        config: MemoryFeedConfig,
        lookup: Callable[[str, str, int], Pose],
        publish_change: Callable[[GraphUpdate], None],
        publish_context: Callable[[MemoryTokens], None],
        monitor: Monitor,
        now_ns: Callable[[], int] | None = None,
        publish_verdict: Callable[[Verdict], None] | None = None,
    ) -> None:
        self._publish_verdict = publish_verdict
        self._judge = EpisodeJudge(memory, MemoryVerdict(MemoryVerdictConfig(opening_m=body.gripper_m)))
        self._began_ns = -1  # when the newest episode began
        self.memory, self.body, self.config = memory, body, config
        self._lookup, self._monitor = lookup, monitor
        self._publish_change, self._publish_context = publish_change, publish_context
        self._episodes = EpisodeFollower(memory)
        self._statuses: StampedBuffer[EpisodeStatus] = StampedBuffer(KEPT)
        self._waiting: StampedBuffer[list[Arrived]] = StampedBuffer(MAX_WAITING)  # for tf of their instant
        self._missing = ""  # what tf lacked last
        self._cameras: set[str] = set()  # that the robot's profile names
        self._scene_ns = self._context_ns = -1  # newest scene taken in; newest scene with a context
        self._episode_changed = False  # since the last commit
        self._looked = False  # since then; that a place was looked at in vain is known, too
        self._guard, self._now_ns = StampGuard(now_ns), now_ns
        known = memory.graph()
        self._newest_ns = known.stamp_ns  # of the scenes that the memory has
        self.durable = self.sequence = known.sequence
        self._full = (-1, -FULL_S, FULL_S)  # sequence and time of the newest that was asked for; the least pause [s]

    @property
    def everything_durable(self) -> bool:
        """Whether nothing would be lost in a crash."""
        return self.sequence == self.durable and not self._episode_changed and not self._looked

    # -- what comes in -------------------------------------------------------------------------------------------

    def scene(self, scene: SceneObservation, hand: Hand | None, received_s: float) -> None:
        """Take in a scene and where the hand was; it may have to wait for tf."""
        if self._refuses("scene", self._guard.refuses(scene.stamp_ns, self._newest_ns or None)):
            return
        if scene.left_out:
            self._monitor.count("objects left out", scene.left_out)
            self._monitor.problem("objects", _left_out(scene))
        if hand is not None:
            scene = replace(scene, hand=hand)
        if scene.camera_pose.frame == self.config.frame:
            self._remember(scene, received_s)
            return
        waiting = [*(self._waiting.at(scene.stamp_ns) or ()), (scene, received_s)]
        gone = [*self._waiting.add(scene.stamp_ns, waiting[-MAX_WAITING:]), waiting[:-MAX_WAITING]]
        if given_up := sum(len(scenes) for scenes in gone):
            self._monitor.count("scenes without tf", given_up)
            self._monitor.problem("tf", self._missing)
        self.place_waiting()
        if self._waited_s() > WAITED_S:
            self._monitor.problem("tf", self._missing)

    def place_waiting(self) -> None:
        """Carry waiting scenes into the memory's frame, oldest first: those for which tf says where the robot was.

        The others wait on. They hold up nobody: a frame that tf never hears of would else stop the memory.
        """
        missing: list[str] = []
        for stamp_ns in self._waiting.stamps:
            placed: list[Arrived] = []
            waiting: list[Arrived] = []
            for scene, received_s in self._waiting.at(stamp_ns) or ():
                try:
                    frame = self._lookup(self.config.frame, scene.camera_pose.frame, stamp_ns)
                    placed.append((self._placed(scene, frame), received_s))
                except EngramError as error:
                    missing.append(str(error))
                    waiting.append((scene, received_s))
            self._keep_waiting(stamp_ns, waiting)
            for scene, received_s in placed:
                self._remember(scene, received_s)
        self._missing = missing[0] if missing else ""

    def _waited_s(self) -> float:
        """Return for how long tf has placed no scene of now, while one waits [s]."""
        since = [scenes[0][1] for at in self._waiting.stamps if at > self._scene_ns if (scenes := self._waiting.at(at))]
        return time.monotonic() - min(since) if since else 0.0

    def _keep_waiting(self, stamp_ns: int, scenes: list[Arrived]) -> None:
        if not scenes:
            self._waiting.pop(stamp_ns)
        elif (kept := self._waiting.at(stamp_ns)) is not None:
            kept[:] = scenes

    def _placed(self, scene: SceneObservation, frame: Pose) -> SceneObservation:
        """Return ``scene`` in the memory's frame; ``frame`` is the pose there of the frame that it came in."""
        sigma = 0.0 if self.config.frame == "base_link" else self.config.base_sigma_m
        robot = self.config.robot_id if scene.camera_pose.frame == "base_link" else ""  # a sensor is no robot's place
        return scene_in_frame(scene, frame, np.eye(3) * sigma**2, robot)

    def status(self, status: EpisodeStatus) -> None:
        """Take in what the episode is doing.

        Raises:
            InvalidInputError: its words are longer than ``WORDS_MAX``.
        """
        check_words("status: instruction", status.instruction)
        check_words("status: task", status.task)
        if self._refuses("status", self._stale(status)):
            return
        self._statuses.add(status.stamp_ns, status)
        self._episode_changed |= self._episodes.status(status)
        if status.running and status.step == 0 and status.stamp_ns != self._began_ns:
            self._began_ns = status.stamp_ns
            self._judge.begin(status.episode, status.instruction)
        if self.config.lockstep:  # the scene of this step may have been there first
            self._tell_context()

    def _stale(self, status: EpisodeStatus) -> str:
        """Say why ``status`` is not of now; empty: it is.

        The last one of a robot at rest may be of any time before. In lock-step one may be here before its /clock.
        """
        stamp_ns, newest_ns = status.stamp_ns, self._statuses.newest_ns
        if self.config.lockstep:
            return self._guard.ahead(stamp_ns)
        if newest_ns is not None and clock_restarted(newest_ns, stamp_ns):
            return self._guard.refuses(stamp_ns, newest_ns)
        if status.running and self._now_ns is not None and (ago_ns := self._now_ns() - stamp_ns) > RUNNING_NS:
            return f"of {ago_ns / 1e9:.0f} s ago, and said to run"
        return self._guard.ahead(stamp_ns)

    def chunk(self, chunk: ActionChunk) -> None:
        """Note what the policy had read for ``chunk``."""
        self._episodes.chunk(chunk)

    # -- what comes of it ----------------------------------------------------------------------------------------

    def share(self, update: GraphUpdate) -> None:
        """Publish ``update``: a change, or the full graph."""
        self._publish_change(update)
        self.sequence = update.sequence

    def share_full(self) -> float:
        """Publish the full graph, for a reader that lost a change; return 0.

        Where it was published a moment ago, return after how long it may be asked for again [s].
        """
        sequence, then_s, pause_s = self._full
        if sequence != self.sequence:
            pause_s = FULL_S
        now_s = time.monotonic()
        if (wait_s := then_s + pause_s - now_s) > 0.0:
            return wait_s
        self.share(self.memory.graph())
        self._full = (self.sequence, now_s, min(2.0 * pause_s, FULL_MAX_S))
        return 0.0

    def commit(self, *, wait: bool = False) -> None:
        """Make durable what changed; while old snapshots are deleted, scenes go first: the next call will do."""
        if not self.everything_durable and (wait or not self.memory.busy):
            with self._monitor.timed("commit"):
                self.memory.commit()
            self.durable, self._episode_changed, self._looked = self.sequence, False, False
            self._monitor.count("commits")
        self.memory.consolidate(self.config.consolidation_s)

    def _remember(self, scene: SceneObservation, received_s: float) -> None:
        with self._monitor.timed("update"):
            update = self.memory.update(scene)
        self._share_change(update)
        if update.refused:
            self._monitor.count("scenes refused")
            self._monitor.problem("scene refused", update.refused)
        else:
            self._monitor.clear("scene refused")
            self._looked |= scene.has_view
            if self._began_ns > update.stamp_ns:  # the episode began before the clock was set back
                self._began_ns += update.shifted_ns
            self._newest_ns = scene.stamp_ns if update.shifted_ns else max(self._newest_ns, scene.stamp_ns)
            if scene.camera not in self._cameras and len(self._cameras) < MAX_CAMERAS:
                self._introduce(scene)
        self._scene_ns = scene.stamp_ns
        self._tell_context()
        self._tell_verdict(update, scene.hand)
        self._monitor.seconds("scene to memory", time.monotonic() - received_s)

    def _refuses(self, kind: str, reason: str) -> bool:
        if reason:
            self._monitor.count(f"{kind} stamps refused")
            self._monitor.problem(f"{kind} stamp", f"{kind} {reason}")
        return bool(reason)

    def _introduce(self, scene: SceneObservation) -> None:
        """Tell the memory whose it is: the robot's body, and the cameras that it has looked with."""
        self._cameras.add(scene.camera)
        known = replace(self.body, sensors=tuple(f"{name} camera" for name in sorted(self._cameras)))
        self._share_change(self.memory.introduce(self.config.robot_id, known, scene.stamp_ns))

    def _share_change(self, update: GraphUpdate) -> None:
        if update.nodes or update.edges or update.deleted_nodes or update.deleted_edges:
            self.share(update)

    def _tell_context(self) -> None:
        """Publish what matters for the instruction, once a scene; in lock-step with the words of that very step."""
        stamp_ns = self._scene_ns
        status = self._statuses.at(stamp_ns) if self.config.lockstep else self._statuses.newest
        if status is None or not status.instruction or stamp_ns == self._context_ns:
            return
        with self._monitor.timed("context"):
            tokens = self._before_the_arm(self.memory.context(status.instruction, stamp_ns))
        if tokens is not None:
            self._publish_context(tokens)
            self._context_ns = stamp_ns

    def _before_the_arm(self, tokens: MemoryTokens) -> MemoryTokens | None:
        """Return ``tokens`` with places in base_link, as policies take them; None: tf does not tell where that is."""
        if self.config.frame == "base_link":
            return tokens
        try:
            base = self._lookup(self.config.frame, "base_link", tokens.stamp_ns)
        except EngramError as error:
            self._monitor.problem("memory/context", f"not told: {error}")
            return None
        place = from_frame(tokens.place, base) * tokens.mask[:, None]
        return replace(tokens, place=place.astype(np.float32))

    def _tell_verdict(self, update: GraphUpdate, hand: Hand | None) -> None:
        """Publish whether the memory sees the instruction of the running episode carried out."""
        status = self._statuses.newest
        if self._publish_verdict is None or status is None or not (status.running and status.instruction):
            return
        if update.stamp_ns < self._began_ns:  # taken before the words were given: it says nothing of them
            return
        with self._monitor.timed("verdict"):
            verdict = self._judge.judge(status.episode, status.instruction, update, hand)
        self._publish_verdict(verdict)


def _left_out(scene: SceneObservation) -> str:
    return (
        f"{scene.camera}: {scene.left_out} objects of one frame left out, at most {MOST_OBJECTS} are taken; "
        "does its detector suppress boxes that overlap?"
    )
