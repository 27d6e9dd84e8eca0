"""Which policy drives: the one that the parameters name, and another one when they are set while the node runs."""

from __future__ import annotations

from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter

from engram.core.contracts import Policy
from engram.core.errors import EngramError, WeightsError
from engram.core.registry import make_kinematics
from engram.core.robot import RobotConfig
from engram.nodes.base import EngramNode
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.factories import check_ablation, check_policy_choice, make_policy, policies_offered
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram.runtime.policy_notes import POLICY_READY, describe_driver
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


class PolicyChoice:
    """Owns the runner of ``node``; a policy that is set later drives from the next episode on."""

    def __init__(self, node: EngramNode, robot: RobotConfig, keeper: EpisodeKeeper) -> None:
        self._node, self._robot = node, robot
        self._driver = (node.config.policy, node.config.ablation)  # what is to drive, from the next episode on
        policy = make_chosen(node.config, robot, *self._driver)
        self.runner = PolicyRunner(policy, self._on_refused, keeper)
        self.runner.label = describe_driver(*self._driver)
        node.health.note(POLICY_READY, self.runner.label)
        node.add_on_set_parameters_callback(self._on_parameters)

    def start(self) -> None:
        """Begin to load what parameters name, in a thread of its own, for as long as the node is active."""
        self._loading = self._node.worker("policy change", self._load, capacity=1)

    def close(self) -> None:
        """Take no more parameters."""
        self._node.remove_on_set_parameters_callback(self._on_parameters)

    def offered(self) -> tuple[str, ...]:
        """Return the policies that may be set while the node runs: none is imported or looked for on the disk."""
        return policies_offered(self._node.config.policy, self._node.config.policies, self._node.config.accept)

    def _on_parameters(self, changed: list[Parameter]) -> SetParametersResult:
        """Take another policy or ablation; loading it takes seconds and happens beside the loop."""
        values = {p.name: str(p.value) for p in changed if p.name in ("policy", "ablation")}
        reason = self._refusal(values) if values else ""
        if values and not reason:
            self._driver = self._named(values)
            self._loading.put(self._driver)
        return SetParametersResult(successful=not reason, reason=reason)

    def _named(self, values: dict[str, str]) -> tuple[str, str]:
        return values.get("policy", self._driver[0]), values.get("ablation", self._driver[1])

    def _refusal(self, values: dict[str, str]) -> str:
        """Return why ``values`` cannot be taken; empty = they can."""
        node = self._node
        if node.state != "active":
            return f"the node is {node.state}, expected active"
        config = node.config
        name, ablation = self._named(values)
        if config.accept != "any" and ablation != self._driver[1]:
            return f"accept is {config.accept!r}, only with 'any' may the ablation change while the node runs"
        try:
            check_policy_choice(name, self.offered())
            check_ablation(name, ablation)
        except EngramError as error:
            return str(error)
        return ""

    def _load(self, driver: tuple[str, str]) -> None:
        """Load what is to drive from the next episode on; in a thread of its own."""
        label = describe_driver(*driver)
        self.runner.offer_policy(make_chosen(self._node.config, self._robot, *driver), label)
        self._node.health.note(POLICY_READY, label)

    def _on_refused(self, error: WeightsError) -> None:
        self._node.report("weights", WeightsError(f"refused, {self.runner.policy.version} drives on: {error}"))
