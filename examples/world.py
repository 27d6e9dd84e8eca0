"""A world of your own: the tabletop, seen by a camera with noise and moved by an arm that reacts late.

It tests how a policy that was trained on clean pictures takes a worse robot:

    engram eval base --tasks reach --episodes 20 --world examples.world:WornWorkcell
    engram record --root data/worn --tasks reach --episodes 100 --world examples.world:WornWorkcell
    engram up sim world:=examples.world:WornWorkcell task:=reach

In Gymnasium: gymnasium.make("engram/Reach-v0", world="examples.world:WornWorkcell"), after `import engram.sim`.
A world without scripted experts can be any subclass of engram.World: four methods, see engram/core/contracts.py.
"""

from dataclasses import replace

import numpy as np

from engram import JointCommand, Observation
from engram.sim import MujocoWorld

NOISE = 12.0
"""Standard deviation of each colour value, of 0..255."""
REACHED = 0.7
"""Share of the commanded joint motion that the worn servos reach within a control step."""


class WornWorkcell(MujocoWorld):
    """The shipped tabletop with worse sensors and worse motors. Noise is drawn from the episode's seed."""

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Begin an episode; the same seed gives the same noise."""
        self.noise = np.random.default_rng([seed, 77])
        return self.seen(super().reset(task, seed, instruction))

    def step(self, command: JointCommand) -> Observation:
        """Go only part of the way that was commanded."""
        now = self.joint_state().positions
        late = now + REACHED * (command.positions - now)
        late[-1] = command.positions[-1]  # the gripper is as good as new
        return self.seen(super().step(replace(command, positions=late)))

    def seen(self, observation: Observation) -> Observation:
        """Return ``observation`` with noise in every colour image."""
        cameras = {}
        for name, frame in observation.cameras.items():
            noisy = frame.color + self.noise.normal(0.0, NOISE, frame.color.shape)
            cameras[name] = replace(frame, color=noisy.clip(0, 255).astype(np.uint8))
        return replace(observation, cameras=cameras)
