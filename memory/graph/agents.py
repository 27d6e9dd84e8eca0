"""The robots in the graph: their poses, what they hold, and their embodiment profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engram.core.types import EMBEDDING_DIM, Embodiment, Hand, Pose, SceneNode, SceneObservation, Skill
from engram.memory.graph.embodiments import Embodiments
from engram.memory.graph.fact_writer import FactWriter
from engram.memory.graph.frame_step import Step
from engram.memory.graph.grasp import Grasps
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.storage.columns import VISIBLE
from engram.memory.storage.history import History


class Agents:
    """Moves the agents of ``scene``, and what their hands hold."""

    def __init__(
        self, config: TrackerConfig, scene: SceneGraph, history: History, grasps: Grasps, fact_writer: FactWriter
    ) -> None:
        self.config, self.scene, self.columns, self.history = config, scene, scene.columns, history
        self.grasps, self.fact_writer = grasps, fact_writer
        self.embodiments = Embodiments()
        self.hands: dict[str, np.ndarray] = {}  # agent's name -> (3,) m, where its tool is
        self._hand_ns: dict[str, int] = {}  # agent's name -> when that was
        self._learnt: set[str] = set()  # agents whose skills the next update tells of

    def move(self, scene: SceneObservation, step: Step) -> None:
        """Bring the robot's node to where it stands, and what it holds to its hand.

        An arm stands in the origin of ``base_link``; of a robot that drives without telling where, only its hand is
        known.
        """
        step.change(self.columns.row_of[one] for one in sorted(self._learnt) if one in self.columns)
        self._learnt.clear()
        hand, body = scene.hand, scene.body
        if body is not None:
            self._stand(body.agent, body.pose, step)
        if hand is None:
            return
        if body is None or body.agent != hand.agent:
            self._stand(hand.agent, hand.pose if self.config.frame != "base_link" else _origin(), step)
        self.hands[hand.agent], self._hand_ns[hand.agent] = hand.pose.position, step.stamp_ns
        self._move_hand(hand, step)

    def hand_known(self, name: str, step: Step) -> bool:
        """Whether it is known where the hand of the agent called ``name`` is: it was told in this look."""
        told_ns = self._hand_ns.get(name)
        return told_ns is not None and abs(step.stamp_ns - told_ns) <= self.config.look_s * 1e9

    def end_old_grips(self, step: Step) -> None:
        """Let go what is in a hand that nothing was heard of for ``grip_s``."""
        for name, node_id in self.grasps.pairs():
            agent_id, told_ns = self.columns.agent_id(name), self._hand_ns.get(name, step.stamp_ns + 1)
            heard_ns = 0 if agent_id is None else int(self.columns.last_ns[self.columns.row_of[agent_id]])
            since_ns = told_ns if told_ns <= step.stamp_ns else heard_ns  # a later one is of before time began anew
            if not self.hand_known(name, step) and step.stamp_ns - since_ns > self.config.grip_s * 1e9:
                self._end_grip(name, node_id, step)

    def end_grips_of(self, node_id: str, step: Step) -> None:
        """Believe no longer that anybody holds ``node_id``, which is not where it was held."""
        for name, held in self.grasps.pairs():
            if held == node_id:
                self._end_grip(name, node_id, step)

    def _end_grip(self, name: str, node_id: str, step: Step) -> None:
        """End a grip that nobody saw end."""
        self.grasps.open(name)
        if node_id in self.columns:
            step.change([self.columns.row_of[node_id]])

    def _stand(self, name: str, pose: Pose, step: Step) -> int:
        """Put the agent called ``name`` at ``pose``; return its row."""
        columns, node_id = self.columns, self.columns.agent_id(name)
        if node_id is None:
            row = self.scene.put(agent(self.scene.new_id("agent"), name, pose, step.stamp_ns, step.evidence))
            step.change([row])
            return row
        row = columns.row_of[node_id]
        columns.last_ns[row] = max(int(columns.last_ns[row]), step.stamp_ns)
        columns.sights[row] += 1
        columns.about(row).last_camera = step.camera or columns.about(row).last_camera
        columns.belief[row], columns.state[row] = 1.0, VISIBLE
        columns.changed.add(row)
        if np.abs(columns.position[row] - pose.position).max() > self.config.relations.resting_m:
            columns.position[row], columns.quaternion[row] = pose.position, pose.quaternion
            columns.moved([row])
            step.change([row])
        elif self.fact_writer.current(row) < 0:
            step.change([row])
        elif step.camera:
            self.history.sighted(node_id, step.stamp_ns, step.camera)
        return row

    def _move_hand(self, hand: Hand, step: Step) -> None:
        columns = self.columns
        taken, dropped = self.grasps.carry(hand, columns)
        held = self.grasps.held(hand.agent)
        if held is not None:
            row = columns.row_of[held]
            columns.changed.add(row)
            step.change([row])
        if taken is not None:
            self.fact_writer.event("held", columns.row_of[taken], step, other=self.columns.agent_id(hand.agent) or "")
        if dropped is not None and dropped in columns:
            self.release(columns.row_of[dropped], step)

    def release(self, row: int, step: Step) -> None:
        """The object in ``row`` is no longer held."""
        self.fact_writer.event("released", row, step)
        step.change([row])

    def introduce(self, name: str, embodiment: Embodiment, step: Step) -> None:
        """Say what the robot called ``name`` is, whose memory this is; where it drives, its place is not known yet."""
        known = self.columns.agent_id(name)
        if known is not None:
            row = self.columns.row_of[known]
        elif self.config.frame == "base_link":
            row = self._stand(name, _origin(), step)
        else:
            somewhere = replace(_origin(), frame=self.config.frame)
            nowhere = agent(self.scene.new_id("agent"), name, somewhere, step.stamp_ns)
            row = self.scene.put(replace(nowhere, belief=0.0, state="unseen"))
            step.change([row])
        about = self.columns.about(row)
        self.embodiments.own = about.id
        if self.embodiments.state(about.id, embodiment, step.stamp_ns):
            about.embodiment = self.embodiments.at(about.id)
            self.columns.changed.add(row)
            step.change([row])

    def learnt(self, skills: Sequence[Skill]) -> None:
        """Take over what the robot whose memory this is has tried; the next update tells of it."""
        own = self.embodiments.own
        if own in self.columns and self.embodiments.learnt(own, skills):
            row = self.columns.row_of[own]
            self.columns.about(row).embodiment = self.embodiments.at(own)
            self.columns.changed.add(row)
            self._learnt.add(own)


def agent(node_id: str, name: str, pose: Pose, stamp_ns: int, evidence: str = "") -> SceneNode:
    """Return the node of a robot that stands at ``pose``."""
    return SceneNode(
        node_id, "agent", name, pose, np.eye(3) * 1e-6, np.full(3, 0.1), np.full(3, 0.5),
        np.zeros(EMBEDDING_DIM, np.float32), 1.0, "visible", stamp_ns, stamp_ns, 1, evidence, evidence,
    )  # fmt: skip


def _origin() -> Pose:
    return Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
