"""A robot that searches for the correction of its motions goal by goal, through its nodes.

    python -m engram.benchmarks.robot_corrections [--quick]

A simulation plays the hardware of a robot on which commands are executed two control steps late (twin ``late``), see
:mod:`engram.benchmarks.robot_twin`. Goals are measured without a correction; other goals are practised with
``correction:=search``, by the verdict of the robot's own memory; then the first ones are measured again with what was
found. The simulator's truth scores, and no node hears of it. Finished goals are kept in ``work`` and gone on with.
Prints a table; the last line is JSON, which also goes to benchmarks/results/robot_corrections.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.benchmarks.robot_twin import FULL_SPEED, Twin, TwinSettings
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.runtime.correction_keeper import FILE, read
from engram.sim.twin import GAP_FILE

ARMS = {"without": "none", "search": "search", "found": "found"}
"""What the goals are called -> what the policy node does with corrections, in this order."""
MEASURED_FROM, PRACTISED_FROM = 6000, 30_000
"""First scenes."""
HOME = Path("nodes/home/.local/share/engram/twin/corrections")
"""Of the robot, in ``work``."""


@dataclass(frozen=True)
class RobotCorrectionsBenchmark:
    """What is measured."""

    quick: bool = False
    """Two goals each."""
    task: str = "stack"
    """What is practised."""
    on: str = "late"
    """The twin's gap: one that can be built into the simulated world."""
    policy: str = "base"
    """What drives."""
    practised: int = 100
    """Goals of the search."""
    search: int = 25
    """After so many goals what was found is taken, if it is surely better than nothing."""
    measured: int = 20
    """Goals of each measurement."""
    goal_s: float = 12.0
    """Time limit of a goal [s]."""
    domain: int = 47
    """ROS_DOMAIN_ID of the nodes."""
    work: Path = Path("runs/robot_corrections")
    """Folder of finished goals, of the robot's home and of the nodes' logs."""
    output: Path = RESULTS / "robot_corrections.json"
    """Where the JSON goes."""

    def wanted(self, arm: str) -> list[int]:
        """Return the scenes of an arm."""
        first, count = (PRACTISED_FROM, self.practised) if arm == "search" else (MEASURED_FROM, self.measured)
        return list(range(first, first + (2 if self.quick else count)))


@contextmanager
def running(config: RobotCorrectionsBenchmark, arm: str) -> Iterator[Twin]:
    """Start twin and nodes; end them on leaving."""
    config.work.mkdir(parents=True, exist_ok=True)
    gap = config.work / "gap.txt"
    gap.write_text(config.on)
    values = {"learner": "false", "policy": config.policy, "correction": ARMS[arm]}
    own = {
        **FULL_SPEED,
        "policy_node": (("correction_goals", config.search),),
    }
    environment = {GAP_FILE: str(gap.resolve())}
    world = "engram.sim.twin:ChangingWorkcell"
    twin = Twin(TwinSettings(config.work, config.domain, values, own, world, environment, config.goal_s))
    try:
        twin.loop.wait_active()
        yield twin
    finally:
        twin.close()


def goals(config: RobotCorrectionsBenchmark) -> list[dict[str, Any]]:
    """Return what came of every goal, those of an earlier run first."""
    kept = config.work / "goals.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(goal["arm"], goal["seed"]) for goal in found}
    for arm in ARMS:
        if todo := [seed for seed in config.wanted(arm) if (arm, seed) not in known]:
            with running(config, arm) as twin, kept.open("a") as out:
                for seed in track(todo, arm, console=Console(file=sys.stderr)):
                    goal = twin.goal(config.task, seed)
                    drives = twin.loop.value("policy_node", "motions corrected by")
                    found.append({"arm": arm, **goal, "corrected_by": drives})
                    out.write(json.dumps(found[-1]) + "\n")
                    out.flush()
    return [goal for goal in found if goal["seed"] in config.wanted(goal["arm"])]


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many goals were reached by the simulator's truth, and how often the robot's verdict was right."""
    rows = []
    for arm in ARMS:
        those = [goal for goal in found if goal["arm"] == arm]
        rate = wilson(sum(goal["truth"] for goal in those), max(1, len(those)))
        rows.append(figure(f"robot_{arm}_reached", rate.rate, len(those), (rate.low, rate.high)))
    right = [(goal["outcome"] == "succeeded") == goal["truth"] for goal in found if goal["arm"] == "search"]
    rate = wilson(sum(right), max(1, len(right)))
    rows.append(figure("robot_verdict_right", rate.rate, len(right), (rate.low, rate.high)))
    return rows


def main(config: RobotCorrectionsBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(RobotCorrectionsBenchmark)
    where = machine()
    found = goals(config)
    known = read(config.work / HOME / FILE)
    corrections = {key: asdict(one.found) for key, one in known.items()}
    table = Table("goals", "n", "reached", "95 % interval", title=f"{config.task} on {config.on}, through the nodes")
    for row in figures(found):
        low, high = row["interval"]
        table.add_row(row["name"], str(row["n"]), f"{row['value']:.2f}", f"{low:.2f}..{high:.2f}")
    Console(stderr=True).print(table)
    told = replace(config, work=Path(config.work.name))
    more = {"corrections": corrections, "goals": found}
    save_report(config.output, "robot_corrections", where, told, figures=figures(found), **more)


if __name__ == "__main__":
    main()
