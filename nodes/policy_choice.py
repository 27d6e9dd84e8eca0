"""Which policy drives: the one that the parameters name, and another one when they are set while the node runs."""

from __future__ import annotations

from pathlib import Path

from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter

from engram.core.errors import WeightsError
from engram.core.robot import RobotConfig
from engram.nodes.base import EngramNode
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.policy_notes import POLICY_READY, describe_driver
from engram.runtime.policy_switch import PolicySwitch


class PolicyChoice:
    """Owns the runner of ``node``; a policy that is set later drives from the next episode on."""

    def __init__(self, node: EngramNode, robot: RobotConfig, keeper: EpisodeKeeper, folder: Path) -> None:
        self._node, self.switch = node, PolicySwitch(node.config, robot)
        self.runner = self.switch.make_runner(self._on_refused, keeper, folder, node.health)
        self.runner.label = describe_driver(*self.switch.driver)
        node.health.note(POLICY_READY, self.runner.label)
        node.add_on_set_parameters_callback(self._on_parameters)

    def start(self) -> None:
        """Begin to load what parameters name, in a thread of its own, for as long as the node is active."""
        self._loading = self._node.worker("policy change", self._load, capacity=1)

    def close(self) -> None:
        """Take no more parameters."""
        self._node.remove_on_set_parameters_callback(self._on_parameters)

    def _on_parameters(self, changed: list[Parameter]) -> SetParametersResult:
        """Take another policy or ablation; loading it takes seconds and happens beside the loop."""
        values = {p.name: str(p.value) for p in changed if p.name in ("policy", "ablation")}
        reason = self.switch.change(values, self._node.state) if values else ""
        if values and not reason:
            self._loading.put(self.switch.driver)
        return SetParametersResult(successful=not reason, reason=reason)

    def _load(self, driver: tuple[str, str]) -> None:
        """Load what is to drive from the next episode on; in a thread of its own."""
        label = describe_driver(*driver)
        self.runner.offer_policy(self.switch.make(driver), label)
        self._node.health.note(POLICY_READY, label)

    def _on_refused(self, error: WeightsError) -> None:
        self._node.report("weights", WeightsError(f"refused, {self.runner.policy.version} drives on: {error}"))
