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

from engram.core.contracts import Kinematics, Memory
from engram.core.control import ControlConfig, hand
from engram.core.dataset_check import check_dataset, data_files
from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, HumanAction, Observation, SceneNode
from engram.learning.rewards.goal import Goal, goal_of
from engram.learning.rewards.memory_verdict import called

WHO = "replay"
"""Who drives, in the experience."""
CLOSES = 0.0
"""A gripper command above this closes the hand."""
LAG_M = 0.03
"""The replay waits for a tool that is farther behind than this."""


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
    """Return those of the dataset ``root`` in which the hand closes, and whose words name a relation.

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
    usable = tuple(one for one in found if one.grasp is not None and goal_of(one.words) is not None)
    if not usable:
        raise InvalidInputError(
            f"{option}: {root}: {len(found)} demonstrations, but none in which the hand closes and whose words name a "
            "relation, such as 'put the red cube in the bin'"
        )
    return usable


def moved(demonstration: Demonstration, thing: np.ndarray, target: np.ndarray | None) -> np.ndarray | None:
    """Return the tool's path (n, 3) m with its grasp at ``thing`` and its release at ``target`` (2,) m on the table.

    Heights stay as demonstrated. None: the demonstration has no grasp, or no release where there is a target.
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
    return out


def _eased(share: np.ndarray) -> np.ndarray:
    """Return ``share``, cut to 0..1, with an end and a begin that are at rest."""
    x = np.clip(share, 0.0, 1.0)
    return np.asarray(x * x * (3.0 - 2.0 * x))


class DemonstrationReplay:
    """Drives a robot by demonstrations; give it to a :class:`engram.runtime.loop.Runtime` as its human.

    Args:
        demonstrations: of those whose words name the same relation, the one whose grasp and release are nearest is
            replayed.
        memory: returns the memory of the running episode.
        words: returns its instruction.
        kinematics, robot: of the arm.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        memory: Callable[[], Memory | None],
        words: Callable[[], str],
        kinematics: Kinematics,
        robot: RobotConfig,
        control: ControlConfig | None = None,
    ) -> None:
        self._demonstrations, self._memory, self._words = tuple(demonstrations), memory, words
        self._kinematics, self._robot, self._control = kinematics, robot, control or ControlConfig()
        self.begin()

    def begin(self) -> None:
        """Begin an episode."""
        self._path: np.ndarray | None = None
        self._gripper: np.ndarray = np.zeros(0)
        self._at = 0
        self.steps = 0
        """Control steps of the episode that it drove."""

    def __call__(self, observation: Observation) -> HumanAction | None:
        """Return what the demonstration does at this control step; None: the policy drives."""
        if self._path is None:
            goal = goal_of(self._words())
            if goal is None or not self._choose(goal):
                return None
        assert self._path is not None
        tool = hand(observation.joints, self._kinematics, self._robot).pose.position
        last = len(self._path) - 1
        if np.linalg.norm(self._path[self._at] - tool) < LAG_M:
            self._at = min(self._at + 1, last)
        motion = (self._path[self._at] - tool) / self._control.position_scale_m
        action = np.zeros(7)
        action[:3] = np.clip(motion, -1.0, 1.0)
        action[6] = self._gripper[max(0, self._at - 1)]
        self.steps += 1
        return HumanAction(observation.stamp_ns, WHO, True, "ee_delta", action)

    def _choose(self, goal: Goal) -> bool:
        """Choose what is replayed, once the memory knows where the things are; tell whether that is so."""
        memory = self._memory()
        nodes = (
            [] if memory is None else [n for n in memory.graph().nodes if n.layer == "object" and n.state != "absent"]
        )
        things, targets = called(goal.thing, nodes), called(goal.target, nodes) if goal.target else []
        if not things or (goal.target and not targets):
            return False
        thing, target = _place(things), _place(targets) if targets else None
        alike = [
            one for one in self._demonstrations if (wants := goal_of(one.words)) and wants.relation == goal.relation
        ]
        nearest = min(alike, key=lambda one: _far(one, thing, target), default=None)
        path = None if nearest is None else moved(nearest, thing, target)
        if nearest is None or path is None:
            return False
        self._path, self._gripper = path, nearest.gripper
        return True


def _place(nodes: Sequence[SceneNode]) -> np.ndarray:
    return max(nodes, key=lambda node: node.belief).pose.position[:2]


def _far(one: Demonstration, thing: np.ndarray, target: np.ndarray | None) -> float:
    """Return how far a demonstration has to be moved [m]; infinite for one that cannot be."""
    grasp, release = one.grasp, one.release
    if grasp is None or (target is not None and release is None):
        return np.inf
    far = float(np.linalg.norm(thing - one.tool[grasp, :2]))
    return far if target is None or release is None else far + float(np.linalg.norm(target - one.tool[release, :2]))
