"""Records of a robot with a gap, without a policy: it waves its arm over the table."""

import numpy as np

from engram.core.control import proprioception
from engram.core.types import Transition
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.world import WorldConfig


def record(gap, episodes, steps=18, image_size=128):
    """Return what a robot with ``gap`` records of random motions: a sequence of transitions for each episode."""
    world = GapWorld(gap, WorldConfig(image_size=image_size) if image_size else WorldConfig(profile="none"))
    rng, made = np.random.default_rng(0), []
    for episode in range(episodes):
        pipeline = gap_pipeline(world)
        observation, done, action = world.reset("reach", 70_000 + episode), [], np.zeros(7)
        for step in range(steps):
            if step % 3 == 0:
                action = np.append(rng.uniform(-0.5, 0.5, 6) * (1, 1, 1, 0.2, 0.2, 0.2), -1.0)
            decision = pipeline.step_action(observation.joints, action)
            done.append(transition(observation, decision.row, world, episode, step))
            observation = world.step(decision.command)
        made.append(tuple(done))
    world.close()
    return made


def transition(observation, executed, world, episode, step):
    return Transition(
        robot_id="robot0",
        boot_id="0",
        sequence=1000 * episode + step + 1,
        episode=episode,
        step=step,
        stamp_ns=observation.stamp_ns,
        task="",
        instruction="reach the red cube",
        images={name: seen.color for name, seen in observation.cameras.items()},
        state=proprioception(observation.joints, world.kinematics, world.robot),
        action=executed.astype(np.float32),
        executed_action=executed.astype(np.float32),
        reward=0.0,
        reward_source="verdict",
        terminated=False,
        truncated=False,
        success=False,
        author="",
        policy_version="test",
    )
