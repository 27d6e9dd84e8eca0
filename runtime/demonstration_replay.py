"""Replays a demonstration in another scene: moved to where the memory believes the things of the instruction to be.

So ten demonstrations become many: what a replay brings to its end, by the verdict, is one more demonstration. The path
of the tool is cut where the hand grasps and where it lets go. Up to the grasp it is moved with the thing that the words
name, and up to the release with the target, as in MimicGen (Mandlekar et al. 2023, arXiv:2310.17596). MimicGen asks a
simulator where things are; here the robot's memory says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from engram.core.contracts import Kinematics
from engram.core.control import ControlConfig
from engram.core.dataset_check import check_dataset, data_files
from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, HumanAction, Observation, SceneNode
from engram.learning.rewards.goal import goal_of
from engram.learning.rewards.memory_verdict import called
from engram.runtime.path_follower import CLOSES, PathFollower
from engram.runtime.teleop import Keys, Seen, TeleopDevice, Wish

WHO = "replay"
"""Who drives, in the experience."""
BELIEVED = 0.5
"""What the memory believes in by less is not there."""
APPROACH = 3
"""Least control steps before the grasp of what can be replayed: a piece that begins with a thing in hand cannot."""
OPEN_HAND = 0.3
"""A hand that is closed farther than this may hold something."""
NEAR_M = 0.15
"""How far the arm may stand from where the demonstration began."""


@dataclass(frozen=True)
class Demonstration:
    """What the tool did in one demonstration."""

    words: str
    tool: np.ndarray  # (n, 3) m, in base_link
    gripper: np.ndarray  # (n,) as commanded, -1 open to 1 closed

    @property
    def grasp(self) -> int | None:
        """Step at which the hand begins to close; None: it never does."""
        closes = np.flatnonzero(self.gripper > CLOSES)
        return int(closes[0]) if len(closes) else None

    @property
    def release(self) -> int | None:
        """Step at which it opens again; None: it holds on, or never closed."""
        if (grasp := self.grasp) is None:
            return None
        opens = np.flatnonzero(self.gripper[grasp:] <= CLOSES)
        return grasp + int(opens[0]) if len(opens) else None


def read_demonstrations(option: str, root: Path) -> tuple[Demonstration, ...]:
    """Return those of the dataset ``root`` in which an open hand comes to a grasp, and whose words name a relation.

    Raises:
        InvalidInputError: it is no dataset, does not say where the tool was, or has no such demonstration; names the
            ``option``.
    """
    check_dataset(root)
    layout = json.loads((root / "meta" / "info.json").read_text())["features"]
    names, length = layout["observation.state"].get("names"), layout["action"]["shape"][0]
    if list(names or ())[:3] != ["x", "y", "z"] or length != EE_ACTION_DIM:
        raise InvalidInputError(
            f"{option}: {root}: state {names}, {length} numbers an action; expected the tool's x, y, z first, and tool "
            f"motions of {EE_ACTION_DIM} numbers, as engram record writes them"
        )
    tasks = pd.read_parquet(root / "meta" / "tasks.parquet")
    words = dict(zip(tasks["task_index"], tasks.index, strict=True))
    columns = ["episode_index", "task_index", "observation.state", "action"]
    frames = pd.concat([pd.read_parquet(file, columns=columns) for file in data_files(root)])
    found = [
        Demonstration(
            words[episode["task_index"].iloc[0]],
            np.stack(episode["observation.state"].tolist())[:, :3],
            np.stack(episode["action"].tolist())[:, -1],
        )
        for _, episode in frames.groupby("episode_index")
    ]
    for at, one in enumerate(found):
        if not (np.isfinite(one.tool).all() and np.isfinite(one.gripper).all()):
            raise InvalidInputError(f"{option}: {root}: episode {at} holds numbers that are not finite")
    usable = tuple(one for one in found if (one.grasp or 0) >= APPROACH and goal_of(one.words) is not None)
    if not usable:
        raise InvalidInputError(
            f"{option}: {root}: {len(found)} demonstrations, but none in which an open hand closes, after {APPROACH} "
            "steps or more, and whose words name a relation, such as 'put the red cube in the bin'"
        )
    return usable


def check_shown_by(option: str, root: Path, robot: RobotConfig, control: ControlConfig | None = None) -> None:
    """Raise InvalidInputError, which names the ``option``, where the dataset ``root`` is of another robot or rate."""
    info = json.loads((root / "meta" / "info.json").read_text())
    dt_s = (control or ControlConfig()).control_dt_s
    if info.get("robot_type") not in (None, robot.name) or abs(info["fps"] * dt_s - 1.0) > 0.01:
        raise InvalidInputError(
            f"{option}: {root}: shown by robot {info.get('robot_type')!r} at {info['fps']:g} steps a second, expected "
            f"{robot.name!r} at {1 / dt_s:g}"
        )


def moved(
    demonstration: Demonstration, thing: np.ndarray, target: np.ndarray | None, start: np.ndarray | None = None
) -> np.ndarray | None:
    """Return the tool's path (n, 3) m with its grasp at ``thing`` and its release at ``target`` (2,) m on the table.

    It begins at ``start`` (3,) m, by default where it was shown. Heights stay as demonstrated from the grasp on.
    None: the demonstration has no grasp, or no release where there is a target.
    """
    grasp, release, path = demonstration.grasp, demonstration.release, demonstration.tool
    if grasp is None or (target is not None and release is None):
        return None
    at_thing = thing - path[grasp, :2]
    at_target = at_thing if target is None or release is None else target - path[release, :2]
    steps = np.arange(len(path))
    reached = _eased(steps / max(1, 0.7 * grasp))[:, None]
    carried = _eased((steps - grasp) / max(1, 0.7 * ((release or len(path)) - grasp)))[:, None]
    out = path.astype(np.float64)
    out[:, :2] += reached * at_thing + carried * (at_target - at_thing)
    return out if start is None else out + (1.0 - reached) * (start - path[0])


def _eased(share: np.ndarray) -> np.ndarray:
    """Return ``share``, cut to 0..1, with an end and a begin that are at rest."""
    x = np.clip(share, 0.0, 1.0)
    return np.asarray(x * x * (3.0 - 2.0 * x))


class DemonstrationReplay:
    """Drives a robot by demonstrations; give it to a :class:`engram.runtime.loop.Runtime` as its human.

    Args:
        demonstrations: of those whose words name the same relation, the one whose grasp and release are nearest is
            replayed.
        scene: returns what the memory knows.
        goal: returns the number of the running goal, and its instruction; empty: none runs.
        kinematics, robot: of the arm.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        scene: Callable[[], Sequence[SceneNode]],
        goal: Callable[[], tuple[int, str]],
        kinematics: Kinematics,
        robot: RobotConfig,
        control: ControlConfig | None = None,
    ) -> None:
        self._demonstrations, self._scene, self._goal = tuple(demonstrations), scene, goal
        self._kinematics, self._robot, self._control = kinematics, robot, control or ControlConfig()
        self.begin()

    def begin(self) -> None:
        """Begin anew: at the next step it is chosen what is replayed."""
        self._follower: PathFollower | None = None
        self._next_s = -np.inf  # when the next control step begins
        self._for = 0, ""  # the goal that it is replayed for
        self.why = ""
        """Why nothing is replayed; empty: something is, or nothing was asked for yet."""
        self.steps = 0
        """Control steps that it drove."""

    @property
    def is_under_way(self) -> bool:
        """Whether a demonstration was begun."""
        return self._follower is not None

    @property
    def is_over(self) -> bool:
        """Whether the demonstration was replayed to its end."""
        return self._follower is not None and self._follower.is_over

    def __call__(self, observation: Observation) -> HumanAction | None:
        """Return what the demonstration does at this control step; None: the policy drives."""
        joints = observation.joints
        action = self.act(joints.positions, observation.stamp_ns / 1e9, joints.held)
        if action is None:
            return None
        self.steps += 1
        return HumanAction(observation.stamp_ns, WHO, True, "ee_delta", action)

    def act(self, positions: np.ndarray, now_s: float, held: bool = False) -> np.ndarray | None:
        """Return the action (7,) where the joints were at ``positions`` at ``now_s``; None: nothing can be replayed.

        The path goes on by one step a control step at most, however often this is called, and not while the robot is
        ``held``: then the tool stays where it is.
        """
        arm = np.asarray(positions)[: len(self._robot.arm_joints)]
        tool, hand = self._kinematics.forward(arm).position, self._robot.gripper_fraction(float(positions[-1]))
        if self._follower is None:
            self._for = self._goal()
            self.why = "the hand is closed: open it first" if hand > OPEN_HAND else self._choose(self._for[1], tool)
        elif self._goal() != self._for:
            self.begin()
            self.why = "the goal has ended"
        if self._follower is None:
            return None
        control_s = self._control.control_dt_s
        action = np.zeros(EE_ACTION_DIM)
        if not held:
            if not self._next_s - 2 * control_s < now_s < self._next_s:  # long before: the clock was set back
                self._next_s = now_s + 0.9 * control_s
                self._follower.step(tool, hand)
            action[:3] = np.clip(self._follower.motion(tool) / self._control.position_scale_m, -1.0, 1.0)
        action[-1] = self._follower.gripper
        return action

    def _choose(self, words: str, tool: np.ndarray) -> str:
        """Choose what is replayed, once the memory knows where the things are; return why that cannot be."""
        if (goal := goal_of(words)) is None:
            return f"{words!r} names no relation" if words else "no goal runs (engram do ...)"
        known = (node for node in self._scene() if node.layer == "object" and node.belief >= BELIEVED)
        nodes = [node for node in known if node.state == "visible"]
        things, targets = called(goal.thing, nodes), called(goal.target, nodes) if goal.target else []
        for name, found in ((goal.thing, things), (goal.target, targets)):
            if name and not found:
                return f"the memory sees no {name!r} now"
        thing, target = _place(things), _place(targets) if targets else None
        low, high = np.array(self._robot.workspace_min[:2]), np.array(self._robot.workspace_max[:2])
        for name, place in ((goal.thing, thing), (goal.target, target)):
            if place is not None and not (low <= place).all() & (place <= high).all():
                return f"the {name} is out of reach, at x {place[0]:.2f} m, y {place[1]:.2f} m"
        alike = [one for one in self._demonstrations if _relation(one) == goal.relation]
        nearest = min(alike, key=lambda one: _far(one, thing, target), default=None)
        path = None if nearest is None else moved(nearest, thing, target, tool)
        if nearest is None or path is None:
            return f"no demonstration shows how the {goal.thing} comes to be {goal.relation} something"
        if (far_m := float(np.linalg.norm(tool - nearest.tool[0]))) > NEAR_M:
            where = ", ".join(f"{axis} {at:.2f}" for axis, at in zip("xyz", nearest.tool[0], strict=True))
            return f"the tool is {far_m:.2f} m from where the demonstration began ({where} m): bring it there first"
        self._follower = PathFollower(path, nearest.gripper)
        return ""


class ReplayDevice(TeleopDevice):
    """Lets a person who watches have demonstrations replayed on a robot: the space bar begins, and hands back."""

    def __init__(self, replay: DemonstrationReplay, keys: Keys) -> None:
        self._replay, self._keys = replay, keys

    def read(self, seen: Seen) -> Wish:
        """Return what the demonstration does, while the person has it replayed; at its end they hand back."""
        _, _, said = self._keys.take()
        if seen.halted and self._keys.drives:
            self._keys.set_driving(False)  # what was moved meanwhile is not where it was
        if not self._keys.drives:
            self._replay.begin()
            return Wish(False, said=said)
        began = self._replay.is_under_way
        action = self._replay.act(seen.positions, seen.stamp_ns / 1e9, seen.held)
        if action is None:
            self._keys.set_driving(not began)  # what comes next is begun anew
            return Wish(False, said=said, note=f"nothing is replayed: {self._replay.why}")
        if self._replay.is_over:
            self._keys.set_driving(False)
        return Wish(True, "ee_delta", action, said)


def _relation(one: Demonstration) -> str:
    goal = goal_of(one.words)
    return goal.relation if goal is not None else ""


def _place(nodes: Sequence[SceneNode]) -> np.ndarray:
    return max(nodes, key=lambda node: node.belief).pose.position[:2]


def _far(one: Demonstration, thing: np.ndarray, target: np.ndarray | None) -> float:
    """Return how far a demonstration has to be moved [m]; infinite for one that cannot be."""
    grasp, release = one.grasp, one.release
    if grasp is None or (target is not None and release is None):
        return np.inf
    far = float(np.linalg.norm(thing - one.tool[grasp, :2]))
    return far if target is None or release is None else far + float(np.linalg.norm(target - one.tool[release, :2]))
