"""Updates of ten critics with a batch of 256: ours beside LeRobot's soft actor-critic of the same sizes and schedule.

Ours learn from what the policy's encoder made of each control step, once; LeRobot's take the same numbers as a state,
or pictures, as it is meant to, which it encodes in every update. An update is one of the critics; after every fifth the
actor and the temperature learn, too. Both draw the two critics of the target anew each time, as RLPD does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.gaussian_actor.configuration_gaussian_actor import (
    ActorNetworkConfig,
    CriticNetworkConfig,
    GaussianActorConfig,
)
from lerobot.policies.gaussian_actor.modeling_gaussian_actor import GaussianActorPolicy
from lerobot.rl.algorithms.sac import SACAlgorithm, SACAlgorithmConfig

from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.critics import MOTION, CriticConfig, Judged, project
from engram.learning.algorithms.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from engram.learning.algorithms.value_learning import ValueLearningConfig
from engram.policies import load_policy

CRITICS, BATCH, EVERY = 10, 256, 5
ROWS = 4000
"""Control steps in memory."""
CAMERAS, SIDE = ("front", "wrist"), 128


def own_updates(policy: str, width: int) -> Callable[[int], None]:
    """Return what takes so many updates of our soft actor-critic with hidden layers of ``width``."""
    soft = SoftActorCriticConfig(critics=CRITICS, lowest_of=2, actor_every=EVERY, batch_size=BATCH)
    config = ValueLearningConfig(critic=CriticConfig(width=width))
    rule = SoftActorCritic(clone_policy(load_policy(policy)), config, soft)
    steps = torch.arange(ROWS)
    ends = steps % 50 >= 50 - config.critic.steps
    judged = Judged(
        seen=torch.randn(ROWS, rule.model.condition_size),
        way=torch.randn(ROWS, MOTION).clamp(-2.0, 2.0),
        departure=torch.randn(ROWS, MOTION).clamp(-1.0, 1.0),
        known=torch.ones(ROWS),
        outcome=torch.rand(ROWS),
        later=torch.where(ends, -1, steps + config.critic.steps),
        part=torch.zeros(ROWS, dtype=torch.int64),
    )
    project(rule.critics, judged.seen)
    return lambda updates: _practised(rule, judged, updates)


def _practised(rule: SoftActorCritic, judged: Judged, updates: int) -> None:
    rule.practise(judged, torch.arange(ROWS) % 2 == 0, updates)


def lerobot_updates(width: int, inputs: int, *, pictures: bool = False) -> Callable[[int], None]:
    """Return what takes so many updates, a multiple of ``EVERY``, of LeRobot's on one prepared batch.

    It sees ``inputs`` numbers, and two pictures where ``pictures``.
    """
    shapes: dict[str, tuple[int, ...]] = {"observation.state": (inputs,)}
    if pictures:
        shapes |= {f"observation.images.{camera}": (3, SIDE, SIDE) for camera in CAMERAS}
    kinds = {name: FeatureType.STATE if len(shape) == 1 else FeatureType.VISUAL for name, shape in shapes.items()}
    config = GaussianActorConfig(
        input_features={name: PolicyFeature(kinds[name], shape) for name, shape in shapes.items()},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (MOTION,))},
        device="cpu",
        latent_dim=width,
        state_encoder_hidden_dim=width,
        actor_network_kwargs=ActorNetworkConfig(hidden_dims=[width, width]),
    )
    peer = SACAlgorithm(
        GaussianActorPolicy(config),
        SACAlgorithmConfig(
            policy_config=config,
            num_critics=CRITICS,
            num_subsample_critics=2,
            utd_ratio=EVERY,
            critic_network_kwargs=CriticNetworkConfig(hidden_dims=[width, width]),
        ),
    )
    peer.make_optimizers_and_scheduler()
    batch: dict[str, Any] = {
        "state": {name: torch.rand(BATCH, *shape) for name, shape in shapes.items()},
        "next_state": {name: torch.rand(BATCH, *shape) for name, shape in shapes.items()},
        "action": torch.rand(BATCH, MOTION) * 2.0 - 1.0,
        "reward": torch.zeros(BATCH),
        "done": torch.zeros(BATCH),
        "truncated": torch.zeros(BATCH),
        "complementary_info": None,
    }
    batches = itertools.repeat(batch)

    def run(updates: int) -> None:
        for _ in range(updates // EVERY):
            peer.update(batches)  # type: ignore[arg-type]

    return run


def inputs_of(width: int) -> int:
    """Return how many numbers our critics see of a control step, without what was done."""
    return CriticConfig(width=width).components + MOTION
