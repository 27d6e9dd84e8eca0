"""The ``engram_success`` reward model as LeRobot saves, loads and asks it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from lerobot.processor.normalize_processor import NormalizerProcessorStep
from lerobot.rewards.pretrained import PreTrainedRewardModel
from torch import Tensor, nn

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError, unknown_name
from engram.learning.rewards.lerobot.configuration_engram_success import SUCCESS, EngramSuccessConfig
from engram.learning.rewards.lerobot.processor_engram_success import make_engram_success_pre_post_processors
from engram.learning.rewards.success_classifier import CONFIRM, Ensemble, SuccessClassifier, form_of
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.vla.network import EngramVLA, encoder_digest
from engram.policies.vla.vla_policy import VlaPolicy


class EngramSuccessRewardModel(PreTrainedRewardModel):
    """A success classifier with the encoder whose features it judges; batches are what its preprocessor returns.

    ``engram classifier`` learns it, not ``lerobot-train``.
    """

    config_class = EngramSuccessConfig
    name = "engram_success"
    config: EngramSuccessConfig

    def __init__(self, config: EngramSuccessConfig, **_: Any) -> None:
        """Build the networks; LeRobot passes dataset metadata in keyword arguments, which they do not need."""
        super().__init__(config)
        self.encoder = EngramVLA(config.policy)
        self.encoder.head = nn.Identity()  # type: ignore[assignment]  # it acts, and is not asked
        self.ensemble = Ensemble(config.inputs, config.width, config.members)
        self.eval()

    @torch.no_grad()
    def judge(self, batch: dict[str, Any]) -> Tensor:
        """Return for each observation the probability that it shows a success, and the progress: (B, 2).

        They are nan where the observation is unlike all that was learnt from.

        Raises:
            UnknownNameError: the words of one, its ``task``, are missing or were not learnt, coloured things aside.
        """
        for words in batch.get("task", ("",)):
            if form_of(words) not in self.config.forms:
                raise unknown_name("engram_success: task", words, self.config.forms)
        return self.ensemble.tell(self.encoder.condition(batch))

    def compute_reward(self, batch: dict[str, Any]) -> Tensor:
        """Return a reward (B,) of each observation, as ``config.reward_output`` says; 0 where it cannot tell."""
        probability, progress = self.judge(batch).nan_to_num(0.0).unbind(1)
        return (probability >= CONFIRM).float() if self.config.reward_output == SUCCESS else progress


def reward_model(classifier: SuccessClassifier, policy: Policy) -> EngramSuccessRewardModel:
    """Return ``classifier``, which learnt from the features of ``policy``, as a reward model of LeRobot's.

    Raises:
        InvalidInputError: it learnt from other weights, or :func:`check_policy` refuses the policy.
    """
    check_policy(policy)
    assert isinstance(policy, VlaPolicy)
    network = policy.network.model
    if classifier.encoder != encoder_digest(network):
        raise InvalidInputError(f"success classifier: it learnt from other weights than those of {policy.version}")
    sizes = classifier.network.sizes
    config = EngramSuccessConfig(
        policy=policy.network.config,
        stats=_stats(policy),
        forms=tuple(sorted(classifier.forms)),
        inputs=sizes["inputs"],
        width=sizes["width"],
        members=sizes["members"],
    )
    made = EngramSuccessRewardModel(config)
    encoder = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("head.")}
    made.encoder.load_state_dict(encoder)
    made.ensemble.load_state_dict(classifier.network.state_dict())
    return made


def check_policy(policy: Policy) -> None:
    """Raise InvalidInputError unless the features of ``policy`` are those of single observations, as LeRobot has them.

    It has no memory of its episode, does not act on memory/context, and its preprocessor is that of its type.
    """
    if not isinstance(policy, VlaPolicy) or not isinstance(policy.network.config, EngramVLAConfig):
        raise InvalidInputError(f"{policy.version}: a reward model of LeRobot's needs a policy of type engram_vla")
    if policy.remembers or policy.reads_context:
        has = "has a memory of its episode" if policy.remembers else "acts on memory/context"
        raise InvalidInputError(
            f"{policy.version} {has}; expected a policy that does not: LeRobot asks for the reward of single "
            "observations, in any order"
        )
    own, _ = make_engram_success_pre_post_processors(
        EngramSuccessConfig(policy=policy.network.config, stats=_stats(policy))
    )
    if _described(own) != _described(policy.preprocess):
        raise InvalidInputError(
            f"{policy.version}: its preprocessor is {_described(policy.preprocess)}, expected {_described(own)}"
        )


def _stats(policy: VlaPolicy) -> dict[str, dict[str, list[float]]]:
    """Return mean and std of what the encoder takes in, as JSON has them."""
    (normalizer,) = (step for step in policy.preprocess.steps if isinstance(step, NormalizerProcessorStep))
    known = {name: normalizer.stats[name] for name in policy.network.config.input_features if name in normalizer.stats}
    return {
        name: {part: np.asarray(stats[part], np.float32).reshape(-1).tolist() for part in ("mean", "std")}
        for name, stats in known.items()
    }


def _described(pipeline: Any) -> str:
    """Return the steps of ``pipeline`` and their settings, as JSON has them."""
    return json.dumps([(type(step).__name__, step.get_config()) for step in pipeline.steps])
