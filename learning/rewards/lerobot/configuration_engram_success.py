"""Configuration of the ``engram_success`` reward model, registered with LeRobot."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs.rewards import RewardModelConfig
from lerobot.configs.types import FeatureType, PolicyFeature

from engram.core.errors import InvalidInputError, unknown_name
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.sequence_memory import NONE

SUCCESS, PROGRESS = "success", "progress"


@RewardModelConfig.register_subclass("engram_success")
@dataclass
class EngramSuccessConfig(RewardModelConfig):
    """A policy's encoder and the classifier that learnt from what it makes of images, state and words.

    Raises:
        UnknownNameError: ``reward_output`` is none.
        InvalidInputError: the policy has a memory of its episode. LeRobot asks for the reward of a batch of
            observations in any order, and of none does it say which came before: what such a policy makes of an
            observation depends on these.
    """

    device: str | None = "cpu"
    reward_output: str = SUCCESS
    """success: 1 where the classifier confirms the success, else 0; progress: the share of the way, 0 to 1."""
    policy: EngramVLAConfig = field(default_factory=lambda: EngramVLAConfig(device="cpu"))
    """Of the encoder."""
    stats: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Mean and standard deviation by which the encoder's images and state are normalised, by feature."""
    forms: tuple[str, ...] = ()
    """Of the words that it has learnt: coloured things are "*"."""
    inputs: int = 0
    """Length of what the encoder makes of an observation."""
    width: int = 128
    """Of each hidden layer of the classifier."""
    members: int = 6
    """Networks of the classifier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward_output not in (SUCCESS, PROGRESS):
            raise unknown_name("EngramSuccessConfig.reward_output", self.reward_output, (SUCCESS, PROGRESS))
        if self.policy.memory != NONE:
            raise InvalidInputError(
                f"EngramSuccessConfig.policy: it has a memory of its episode ({self.policy.memory}), expected {NONE}: "
                "LeRobot asks for the reward of observations in any order"
            )
        self.input_features = dict(self.policy.input_features or {})
        self.output_features = {self.reward_output: PolicyFeature(FeatureType.REWARD, (1,))}

    def validate_features(self) -> None:
        """Raise InvalidInputError unless the encoder has a camera, the robot's state and an action."""
        self.policy.validate_features()
