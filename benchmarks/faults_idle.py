"""A robot that nobody drives and nobody has stopped, and a process that pretends to drive it: nothing may move.

The robot is the one of the sensor trials, behind the nodes of ``engram up robot``. In what the process sends nothing
is wrong but its writer. The same messages drive a robot whose safety node does not ask who writes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from trajectory_msgs.msg import JointTrajectory

from engram.benchmarks.faults_hostile import Attack, Block
from engram.benchmarks.faults_kills import watched_figures
from engram.benchmarks.faults_limits import STILL_RAD
from engram.benchmarks.faults_loop import findings
from engram.benchmarks.faults_pretence import Pretender
from engram.benchmarks.faults_sensors import SensorTrial, robot_loop
from engram.benchmarks.faults_writers import Writers
from engram.benchmarks.report import figure
from engram.core.registry import make_robot
from engram.learning.weights.keys import PUBLIC, make_signing_key, trust
from engram.nodes import qos

RATE = 20.0
"""Messages to each topic [1/s]: a person or a policy sends as many, or fewer."""
TOGETHER_S, QUICK_S, ALONE_S, CONTROL_S = 30.0, 4.0, 4.0, 5.0
"""How long messages go to all topics together, so in a quick trial, to each alone, and where nobody is asked [s]."""
GOAL_S, BRAKES_S = 2.0, 2.0
"""Length of the goal between the two attacks, and how long the arm then has to come to rest [s]."""
CONTROLLER = "joint_trajectory_controller/joint_trajectory"
UNCOUNTED = ("/clock", "/tf", "/tf_static")
"""Time and tf may have several writers."""


class Forwarded:
    """Counts what ``robot_node`` sends to the controller of the arm."""

    def __init__(self, robot: SensorTrial) -> None:
        node = robot.loop.client.node
        self.count, self._writers = 0, Writers(node)
        node.create_subscription(JointTrajectory, CONTROLLER, self._take, qos.COMMAND)

    def _take(self, msg: JointTrajectory, info: Any) -> None:
        self.count += self._writers.name(CONTROLLER, info) == "robot_node"


class IdleTrial:
    """Attacks a robot while nobody drives it.

    Args:
        robot: the running robot.
        topics: full names of the topics to attack.
        attack: the process that pretends.
    """

    def __init__(self, robot: SensorTrial, topics: list[str], attack: Attack) -> None:
        self.robot, self.topics, self.attack = robot, topics, attack
        self.forwarded, self.commands = Forwarded(robot), 0
        self.refused: Counter[str] = Counter()  # counters of refusals, by which they grew
        self.stopped: list[str] = []  # blocks in which the robot was stopped: nothing could move

    def block(self, name: str, topics: list[str], seconds: float) -> Block:
        """Send to ``topics`` for a while and note what came of it."""
        before, forwarded = self.robot.loop.refusals(), self.forwarded.count
        targets = [f"topic:{topic}" for topic in topics]
        block = self.attack.block(name, targets, round(seconds * RATE), under_stop=False, order="pretend")
        self.refused += self.robot.loop.refusals() - before
        self.commands += self.forwarded.count - forwarded
        if self.robot.stopped:
            self.stopped.append(name)
            self.robot.make_ready()
        return block

    def uncounted(self) -> list[str]:
        """Return the topics whose refusals no counter names."""
        return [
            topic
            for topic in self.topics
            if topic not in UNCOUNTED and not any(topic.strip("/") in counter for counter in self.refused)
        ]


def prepare_keys(folder: Path) -> dict[str, str]:
    """Trust a key that signs nothing, so that weights are listened to; return the launch arguments for it."""
    keys = folder / "home/.local/share/engram/robot0/keys"
    make_signing_key(keys)
    trust(keys, keys / PUBLIC)
    return {"accept": "approved"}


def trial(folder: Path, domain: int, seed: int, *, quick: bool) -> list[dict[str, Any]]:
    """Attack before the first goal and after one, and then the robot that asks nobody; return the figures.

    ``quick``: all topics together alone, and no other robot.
    """
    with robot_loop(folder, domain, prepare_keys(folder)) as robot:
        robot.make_ready()
        since = time.monotonic()
        attack = Attack(robot.loop, robot, seed, RATE)
        try:
            listened = set(attack.targets()["topics"])
            wanted = [f"/{name}" for name in Pretender(make_robot("panda_2f85")).topics]
            idle = IdleTrial(robot, [topic for topic in wanted if topic in listened], attack)
            if not quick:
                for topic in idle.topics:
                    idle.block(topic, [topic], ALONE_S)
            together_s = QUICK_S if quick else TOGETHER_S
            idle.block("all topics", idle.topics, together_s)
            _, result = robot.begin("moving", GOAL_S)
            robot.wait(result.done, 30.0, "the end of the goal")
            robot.loop.client.spin(BRAKES_S)
            idle.block("all topics after a goal", idle.topics, together_s)
        finally:
            attack.close()
        handle, _ = robot.begin("moving", 30.0)
        moves = robot.moved(1.0) > STILL_RAD
        handle.cancel_goal_async()
        robot.loop.client.spin(BRAKES_S)
    not_heard = [topic for topic in wanted if topic not in listened]
    rows = figures(idle, findings(robot.watched, since), not_heard, moves=moves)
    rows += watched_figures("idle", robot.watched, since)
    return rows if quick else [*rows, control(folder / "unbound", domain, seed)]


def figures(idle: IdleTrial, found: list[dict[str, Any]], not_heard: list[str], *, moves: bool) -> list[dict[str, Any]]:
    """Return what was sent and refused, and which commands came although nobody drove."""
    blocks = idle.attack.blocks
    sent, down = sum(block.sent for block in blocks), [f"{n} after {b.name}" for b in blocks for n in b.down]
    unasked = [row for row in found if row["kind"] == "command_not_allowed"]
    commands, silent = len(unasked) + idle.commands, idle.uncounted()
    return [
        figure("idle_messages", sent, sent, blocks=len(blocks), topics=idle.topics, not_heard=not_heard,
               refused=dict(idle.refused), problems=[block.problem for block in blocks if block.problem]),
        figure("idle_commands_not_allowed", commands, sent, None, "== 0", commands == 0,
               of_safety_node=len(unasked), of_robot_node=idle.commands),
        figure("idle_stops", len(idle.stopped), len(blocks), None, "== 0", not idle.stopped, blocks=idle.stopped),
        figure("idle_nodes_down_over_10_s", len(down), len(blocks), None, "== 0", not down, down=down),
        figure("idle_topics_without_counted_refusal", len(silent), len(idle.topics), None, "== 0", not silent,
               names=silent),
        figure("idle_goal_moves_after", float(moves), 1, None, "== 1", moves),
    ]  # fmt: skip


def control(folder: Path, domain: int, seed: int) -> dict[str, Any]:
    """Let the same messages drive a robot whose safety node does not ask who writes: they would, and it is seen."""
    with robot_loop(folder, domain, bound=False) as robot:
        robot.make_ready()
        attack = Attack(robot.loop, robot, seed, RATE)
        try:
            idle = IdleTrial(robot, ["/intervention"], attack)
            attack.targets()
            idle.block("intervention without writers", idle.topics, CONTROL_S)
        finally:
            attack.close()
        robot.loop.client.spin(BRAKES_S)
    kinds = Counter(row["kind"] for row in findings(robot.watched))
    seen = kinds["motion_not_allowed"]
    print(f"unbound: {dict(kinds)}, {idle.commands} commands to the controller", file=sys.stderr, flush=True)
    return figure("idle_unbound_motions_seen", seen, idle.commands, None, ">= 1", seen > 0)
