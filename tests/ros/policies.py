"""Small real policies for the processes: deterministic, and sensitive to every bit that reaches them."""

from __future__ import annotations

import zlib

import numpy as np

from engram.core.contracts import FeaturePolicy, Policy, StatefulPolicy
from engram.core.registry import make_robot
from engram.core.types import ActionChunk, Features, Lineage
from engram.learning.weights.manifest import compare_specs, tensor_specs
from engram.sim.oracle import PrivilegedPolicy
from engram.sim.world import MujocoWorld, WorldConfig

LINEAGE = Lineage("r" * 64, "a" * 64, "n" * 64, "eyes")
OTHER = Lineage("s" * 64, "a" * 64, "n" * 64, "other eyes")


class EyesAndNoise(Policy):
    """Each action depends on the pixels, the joints, the words, the episode's seed and everything observed so far.

    A difference of one bit anywhere, or one observation more or less, gives other actions.
    """

    lineage = LINEAGE

    def reset(self, instruction, episode=0, seed=0):
        self.episode = episode
        self.digest = zlib.crc32(instruction.encode(), seed)
        self.stamp = None

    def observe(self, observation, memory=None):
        if observation.stamp_ns == self.stamp:
            return
        self.stamp = observation.stamp_ns
        for name in sorted(observation.cameras):
            self.digest = zlib.crc32(observation.cameras[name].color.tobytes(), self.digest)
        self.digest = zlib.crc32(observation.joints.positions.tobytes(), self.digest)
        self.digest = zlib.crc32(observation.joints.velocities.tobytes(), self.digest)
        if memory is not None:
            self.digest = zlib.crc32(memory.tokens.tobytes(), self.digest)

    def act(self):
        actions = np.random.default_rng(self.digest).uniform(-0.4, 0.4, (6, 7))
        return ActionChunk(self.stamp, self.episode, "ee_delta", actions, 0.1, 4, "v0")

    def load_weights(self, path, version):
        raise NotImplementedError("this policy has no weights")

    @property
    def version(self):
        return "v0"


class OneWeight(EyesAndNoise):
    """Takes weights of one tensor ``w`` (3,) and nothing else."""

    _version = "v0"

    def load_weights(self, path, version):
        compare_specs(tensor_specs(path.read_bytes()), {"w": ((3,), "F32")}, f"weights {version!r}")
        self._version = version

    @property
    def version(self):
        return self._version


class Remembers(EyesAndNoise, StatefulPolicy):
    """Keeps over a restart what it has observed in its episode."""

    def memory_state(self):
        return {"digest": np.array([self.digest], np.int64)}

    def restore_memory(self, arrays):
        self.digest = int(arrays["digest"][0])


class ReadsContext(EyesAndNoise):
    """Acts on memory/context, as it does on everything."""

    reads_context = True


class Fails(EyesAndNoise):
    """Has an error for every goal, and no answer."""

    def reset(self, instruction, episode=0, seed=0):
        super().reset(instruction, episode, seed)
        self.instruction = instruction

    def act(self):
        if not self.instruction:  # the node warms its policies up
            return super().act()
        raise ValueError("no answer")


class Counts(EyesAndNoise, FeaturePolicy):
    """Its only feature is how many steps of its episode it has observed."""

    def reset(self, instruction, episode=0, seed=0):
        super().reset(instruction, episode, seed)
        self.seen = set()

    def observe(self, observation, memory=None):
        super().observe(observation, memory)
        self.seen.add(observation.stamp_ns)

    def features(self):
        return Features("eyes", np.array([len(self.seen)], np.float32))


SO101_SEED = 5
"""Of the episode that :class:`SO101Expert` can do."""


class SO101Expert(PrivilegedPolicy):
    """Picks with the SO-101 in the episode of ``SO101_SEED``, from a simulation of its own at the same step."""

    def __init__(self):
        super().__init__(MujocoWorld(WorldConfig(profile="none"), make_robot("so101")), execute_steps=2)

    def reset(self, instruction, episode=0, seed=0):
        if not instruction:  # the node warms its policies up
            return
        self._world.reset("pick_place", SO101_SEED, instruction)
        super().reset(instruction, episode, SO101_SEED)
