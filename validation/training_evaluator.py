"""The evaluation at the end of a training: rates with intervals, on seeds that were never trained on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engram.core.errors import InvalidInputError
from engram.core.registry import ROBOTS, make_robot
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.sim.tasks import SUITES, is_task
from engram.validation.evaluation import evaluate_checkpoint


class SimulationEvaluator:
    """Runs a trained policy in the simulated tasks of its dataset; an ``Evaluator`` of engram.policies.training."""

    def tasks(self, groups: Iterable[str]) -> list[str]:
        """Return those ``groups`` of a dataset that are simulated tasks; raises InvalidInputError if there are none."""
        groups, known = list(groups), SUITES["all"]
        tasks = [group for group in groups if is_task(group)]
        if not tasks:
            named, valid = ", ".join(groups), ", ".join(known)
            raise InvalidInputError(f"evaluate: none of {named} is a simulated task; valid: {valid}")
        return tasks

    def robot(self, name: str | None, state: int) -> RobotConfig:
        """Return the robot that a dataset calls ``name`` (None: not at all, so the Panda).

        Raises:
            InvalidInputError: no robot of Engram's is called so, or it has other than ``state`` numbers in its state.
        """
        if name is not None and name not in ROBOTS:
            raise InvalidInputError(
                f"evaluate: the dataset was recorded on robot {name!r}, which has no simulation of Engram's; valid: "
                f"{', '.join(ROBOTS)}; for a robot of your own, `engram eval --robot` after the training"
            )
        robot = PANDA_2F85 if name is None else make_robot(name)
        if robot.state_dim != state:
            raise InvalidInputError(
                f"evaluate: robot {robot.name!r} has {robot.state_dim} numbers in its state, the dataset has {state}"
            )
        return robot

    def evaluate(self, policy: Path, tasks: Sequence[str], robot: RobotConfig, episodes: int) -> dict[str, Any]:
        """Return success rates with intervals of the policy in folder ``policy`` on ``robot``, as JSON keeps them."""
        return dict(json.loads(evaluate_checkpoint(policy, tasks, episodes=episodes, robot=robot).to_json()))
