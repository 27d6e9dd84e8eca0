"""What the network of an algorithm takes, so that replay keeps that of an episode and nothing else."""

from __future__ import annotations

import numpy as np

from engram.learning.algorithms.contract import Algorithm
from engram.learning.replay.buffer import ACTION, STATE


def taken_by(algorithm: Algorithm) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what the network of ``algorithm`` takes, by LeRobot's keys, images as it shrinks them.

    Empty: a rule of one's own, of whose network nothing is known.
    """
    if not algorithm.chunk_steps:  # it does not even tell how long the chunks are
        return {}
    from engram.learning.algorithms.behavior_cloning import BehaviorCloning  # torch takes seconds
    from engram.learning.algorithms.value_learning import ValueLearning
    from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy

    if isinstance(algorithm, BehaviorCloning) and isinstance(algorithm.network, EngramVLAPolicy):
        config = algorithm.network.config
    elif isinstance(algorithm, ValueLearning):
        config = algorithm.model.config
    else:
        return {}
    assert config.robot_state_feature is not None and config.action_feature is not None
    trained = {key: np.zeros((1, *feature.shape), np.uint8) for key, feature in config.image_features.items()}
    images = {key: algorithm.shrink(key, one).shape[1:] for key, one in trained.items()}
    return images | {STATE: tuple(config.robot_state_feature.shape), ACTION: tuple(config.action_feature.shape)}
