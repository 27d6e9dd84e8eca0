"""The evaluation at the end of a training: rates with intervals, on seeds that were never trained on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engram.core.errors import InvalidInputError
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

    def evaluate(self, policy: Path, tasks: Sequence[str], episodes: int) -> dict[str, Any]:
        """Return success rates with intervals of the policy in folder ``policy``, as JSON keeps them."""
        return dict(json.loads(evaluate_checkpoint(policy, tasks, episodes=episodes).to_json()))
