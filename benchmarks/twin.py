"""Goals on a robot that nobody judges but its own memory: a simulation plays the hardware behind ros2_control's topics.

    python -m engram.benchmarks.twin [--quick]

The nodes are those of ``engram up robot``. The twin is reached by ``hardware/joint_states``, the trajectory
controller's topic, cameras and tf alone: its simulator ends no episode, and tells no node whether one went well. A goal
ends when the memory is certain of success, or by its time limit; afterwards the simulator's truth scores the verdict.
Finished goals are kept in ``work``. Prints a table; the last line is JSON, which also goes to
benchmarks/results/twin.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rclpy.action import ActionClient
from rclpy.client import Client
from rclpy.task import Future
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.faults_loop import Loop, TrialError, end, trial_graph
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.benchmarks.verdicts import MOMENTARY
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.nodes import qos
from engram.sim.tasks import TASKS, get_task
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import TaskStatus
from engram_interfaces.srv import ResetSim

REMAPPED = {
    "joint_states": "hardware/joint_states",
    "command": "joint_trajectory_controller/joint_trajectory",
    "task/status": "twin/status",
    "task/step": "twin/step",
    "sim/reset": "twin/reset",
    "safety/stopped": "twin/stopped",
}
"""Topics of sim_node, by what a robot's hardware calls them; what a robot has not is out of the nodes' sight."""
GOAL_S, WAIT_S = 20.0, 60.0
"""Time limit of a goal [s of the nodes' clock], and longest wait for an answer [s]."""
SETTLE_S = 1.0
"""How long the robot stays stopped after things were arranged [s]."""


@dataclass(frozen=True)
class TwinBenchmark:
    """What is measured."""

    quick: bool = False
    """One goal of each task."""
    goals: int = 10
    """Goals of each task, seeds 6000 and up."""
    policy: str = "base"
    """What drives."""
    domain: int = 45
    """ROS_DOMAIN_ID of the nodes."""
    work: Path = Path("runs/twin")
    """Folder of finished goals, and of the nodes' logs."""
    output: Path = RESULTS / "twin.json"
    """Where the JSON goes."""


class Twin:
    """The running nodes of a robot, and the simulation that plays its hardware."""

    def __init__(self, config: TwinBenchmark) -> None:
        values = {"viewer": "false", "learner": "false", "policy": config.policy, "use_sim_time": "true"}
        graph = trial_graph("robot", values)
        joints = {"robot_node": (("hardware_joints", [""]),)}  # the twin's joints are called as ours
        nodes = [replace(n, parameters=(*n.parameters, *joints.get(n.executable, ()))) for n in graph.nodes]
        self.loop = Loop(replace(graph, nodes=tuple(nodes)), config.work / "nodes", config.domain)
        self.body = self._start_body(config.work / "nodes" / "twin.log")
        node = self.loop.client.node
        self.truth: TaskStatus | None = None
        node.create_subscription(TaskStatus, "twin/status", self._on_truth, qos.LATCHED)
        self._reset: Client = node.create_client(ResetSim, "twin/reset")
        self._goals: ActionClient = ActionClient(node, ExecuteTask, "execute_task")

    def _start_body(self, log: Path) -> subprocess.Popen[bytes]:
        words = ["--ros-args", "-r", "__node:=twin"]
        for name, there in REMAPPED.items():
            words += ["-r", f"{name}:={there}"]
        settings = ("world:=engram.sim.twin:UnjudgedWorkcell", "world_config.depth:=true", "lockstep:=false")
        for setting in (*settings, "autostart:=true"):
            words += ["-p", setting]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            command = [sys.executable, "-m", "engram.nodes.sim_node", *words]
            return subprocess.Popen(command, env=self.loop.environment, stdout=out, stderr=out)

    def _on_truth(self, msg: TaskStatus) -> None:
        self.truth = msg

    def goal(self, task: str, seed: int) -> dict[str, Any]:
        """Arrange ``task`` from ``seed``, give its words as a goal; return how it ended, and what is true.

        The robot is stopped while things are arranged: its arm is put back too, which no motor could.
        """
        client = self.loop.client
        client.wait_for(self._reset.service_is_ready, WAIT_S, "twin/reset")
        client.wait_for(self._goals.server_is_ready, WAIT_S, "execute_task")
        client.trigger("safety/stop", WAIT_S)
        arranged = self._answer(self._reset.call_async(ResetSim.Request(task=task, seed=seed)), WAIT_S)
        if not arranged.accepted:
            raise TrialError(f"{task}, seed {seed}: {arranged.message}")
        number = arranged.episode
        client.wait_for(lambda: self.truth is not None and self.truth.episode == number, WAIT_S, "the twin's episode")
        assert self.truth is not None
        client.spin(SETTLE_S)
        client.trigger("safety/reset", WAIT_S)
        words, ever = self.truth.instruction, False
        goal = ExecuteTask.Goal(instruction=words, timeout_s=GOAL_S)
        ended = self._answer(self._goals.send_goal_async(goal), WAIT_S).get_result_async()

        def over() -> bool:
            nonlocal ever
            ever |= self.truth is not None and self.truth.oracle_reward > 0
            return ended.done()

        client.wait_for(over, 4 * GOAL_S + WAIT_S, "end of the goal")
        result = self._answer(ended, WAIT_S).result
        now = self.truth.oracle_reward > 0  # what the arm does after the end, it does too late
        return {
            "task": task,
            "seed": seed,
            "words": words,
            "outcome": result.outcome,
            "reason": result.reason,
            "duration_s": round(result.duration_s, 2),
            "truth": ever if task in MOMENTARY else now,
        }

    def _answer(self, asked: Future[Any], timeout_s: float) -> Any:
        self.loop.client.wait_for(asked.done, timeout_s, "answer")
        return asked.result()

    def close(self) -> None:
        """End the nodes, then the twin."""
        self.loop.close()
        end(self.body)


@contextmanager
def running(config: TwinBenchmark) -> Iterator[Twin]:
    """Start twin and nodes; end them on leaving."""
    twin = Twin(config)
    try:
        twin.loop.wait_active()
        yield twin
    finally:
        twin.close()


def goals(config: TwinBenchmark) -> list[dict[str, Any]]:
    """Return what came of every goal, those of an earlier run first."""
    kept = config.work / f"goals-{config.policy.replace('/', '_')}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(goal["task"], goal["seed"]) for goal in found}
    wanted = [(task, 6000 + i) for i in range(1 if config.quick else config.goals) for task in TASKS]
    if todo := [one for one in wanted if one not in known]:
        with running(config) as twin, kept.open("a") as out:
            for task, seed in track(todo, "goals", console=Console(file=sys.stderr)):
                goal = twin.goal(task, seed)
                out.write(json.dumps(goal) + "\n")
                out.flush()
                found.append(goal)
    return [goal for goal in found if (goal["task"], goal["seed"]) in wanted]


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many goals were reached, how often the verdict is right, and how soon a goal ends."""
    rows = []
    right = [(goal["outcome"] == "succeeded") == goal["truth"] for goal in found]
    judged = [goal for goal in found if goal["outcome"] == "succeeded"]
    for name, hits in (
        ("twin_goals_succeeded", [goal["outcome"] == "succeeded" for goal in found]),
        ("twin_verdict_right", right),
        ("twin_false_success", [not goal["truth"] for goal in judged]),
    ):
        rate = wilson(sum(hits), max(1, len(hits)))
        rows.append(figure(name, rate.rate, len(hits), (rate.low, rate.high)))
    if judged:
        times = sorted(goal["duration_s"] for goal in judged)
        rows.append(figure("twin_goal_p50_s", times[len(times) // 2], len(times)))
    return rows


def main(config: TwinBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(TwinBenchmark)
    where = machine()
    found = goals(config)
    table = Table("task", "goals", "succeeded", "verdict right", title="Goals that the memory judged")
    for task in TASKS:
        those = [goal for goal in found if goal["task"] == task]
        right = sum((goal["outcome"] == "succeeded") == goal["truth"] for goal in those)
        done = sum(goal["outcome"] == "succeeded" for goal in those)
        table.add_row(get_task(task).name, str(len(those)), str(done), str(right))
    Console(stderr=True).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "twin", where, told, figures=figures(found), goals=found)


if __name__ == "__main__":
    main()
