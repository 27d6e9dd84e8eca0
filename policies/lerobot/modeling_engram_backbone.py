"""The ``engram_backbone`` policy as LeRobot evaluates, saves and loads it; its file of weights is the memory alone."""

from __future__ import annotations

from typing import Any

from engram.policies.backbones.loading import load_trunk
from engram.policies.backbones.network import BackboneNetwork
from engram.policies.backbones.trunk import Trunk
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.network_policy import NetworkPolicy


class EngramBackbonePolicy(NetworkPolicy):
    """LeRobot's interface around :class:`BackboneNetwork`."""

    config_class = EngramBackboneConfig
    name = "engram_backbone"

    def __init__(self, config: EngramBackboneConfig, trunk: Trunk | None = None, **kwargs: Any) -> None:
        """Load the backbone, or share the loaded ``trunk``, and build the memory beside it.

        What LeRobot passes in ``kwargs`` is not needed.
        """
        super().__init__(config, BackboneNetwork(config, trunk or load_trunk(config)))
