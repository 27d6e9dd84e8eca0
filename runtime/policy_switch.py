"""Which policy drives: the one that the node's parameters name, and another one when they change. No ROS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engram.core.contracts import Policy
from engram.core.errors import EngramError, WeightsError
from engram.core.registry import make_kinematics
from engram.core.robot import RobotConfig
from engram.learning.exploration import Exploration, ExplorationConfig
from engram.runtime.correction_keeper import CorrectionKeeper
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.factories import check_ablation, check_policy_choice, make_policy, policies_offered
from engram.runtime.health import ERROR, Health
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram.runtime.policy_runner import PolicyRunner


def make_chosen(config: PolicyNodeConfig, robot: RobotConfig, name: str, ablation: str) -> Policy:
    """Return the policy ``name``, used as ``config`` says, for ``robot``."""
    return make_policy(
        name,
        config.execute_steps,
        config.ensemble,
        config.real_time_delay,
        None if config.adaptive_m < 0 else config.adaptive_m,
        ablation,
        kinematics=make_kinematics(robot),
        robot=robot,
        control_dt_s=config.control_dt_s,
    )


class PolicySwitch:
    """Knows what is to drive ``robot``, by the parameters ``config`` and what they were set to since."""

    def __init__(self, config: PolicyNodeConfig, robot: RobotConfig) -> None:
        self._config, self._robot = config, robot
        self.driver = (config.policy, config.ablation)
        """Policy and ablation that are to drive, from the next episode on."""

    def offered(self) -> tuple[str, ...]:
        """Return the policies that may be set while the node runs: none is imported or looked for on the disk."""
        return policies_offered(self._config.policy, self._config.policies, self._config.accept)

    def make(self, driver: tuple[str, str]) -> Policy:
        """Return the policy of ``driver``; loading it takes seconds."""
        return make_chosen(self._config, self._robot, *driver)

    def make_runner(
        self, on_refused: Callable[[WeightsError], None], keeper: EpisodeKeeper, corrections: Path, health: Health
    ) -> PolicyRunner:
        """Return what lets the policy drive, with the noise and the corrections that the parameters name.

        Args:
            on_refused: is told of weights that were refused.
            keeper: of the sequence memory.
            corrections: folder.
            health: where it is shown that corrections cannot be read or written.
        """
        config = self._config
        size = 0.0 if config.correction == "search" else config.exploration
        explore = Exploration(ExplorationConfig(size=size, hold_steps=config.exploration_hold))
        kept = CorrectionKeeper(
            corrections,
            config.correction,
            config.correction_goals,
            config.correction_margin,
            on_problem=lambda text: health.problem("correction", text, ERROR, lasting=True),
        )
        return PolicyRunner(self.make(self.driver), on_refused, keeper, explore, kept)

    def change(self, values: Mapping[str, str], state: str) -> str:
        """Take another policy or ablation, by the names of their parameters.

        Args:
            values: parameter -> what it is set to.
            state: the node's, in its lifecycle.

        Returns:
            why they are refused, and nothing changes; empty: they are not.
        """
        driver = values.get("policy", self.driver[0]), values.get("ablation", self.driver[1])
        reason = self._refusal(driver, state)
        if not reason:
            self.driver = driver
        return reason

    def _refusal(self, driver: tuple[str, str], state: str) -> str:
        if state != "active":
            return f"the node is {state}, expected active"
        accept, (name, ablation) = self._config.accept, driver
        if accept != "any" and ablation != self.driver[1]:
            return f"accept is {accept!r}, only with 'any' may the ablation change while the node runs"
        try:
            check_policy_choice(name, self.offered())
            check_ablation(name, ablation)
        except EngramError as error:
            return str(error)
        return ""
