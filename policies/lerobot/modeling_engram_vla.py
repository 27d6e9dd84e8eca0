"""The ``engram_vla`` policy as LeRobot trains, evaluates, saves and loads it."""

from __future__ import annotations

from typing import Any

from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.vla.network import EngramVLA


class EngramVLAPolicy(NetworkPolicy):
    """LeRobot's interface around :class:`EngramVLA`."""

    config_class = EngramVLAConfig
    name = "engram_vla"
    model: EngramVLA

    def __init__(self, config: EngramVLAConfig, **kwargs: Any) -> None:
        """Build the network; LeRobot passes dataset metadata in ``kwargs``, which the network does not need."""
        super().__init__(config, EngramVLA(config))
