"""An algorithm small enough for a test: its one weight counts the updates."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load, save

from engram.learning.algorithms import Algorithm
from engram.learning.weights.manifest import compare_specs, tensor_specs
from tests.ros.policies import LINEAGE, OTHER


class Counting(Algorithm):
    """Each update adds one."""

    size = 20_000
    lineage = LINEAGE

    def __init__(self, policy):
        self.count = np.ones(self.size, np.float32)

    def update(self, batch, seed):
        self.count += 1
        return {"loss": 1.0 / float(self.count[0])}

    def weights(self):
        return save({"count": self.count})

    def save(self):
        return self.weights()

    def begin(self, weights):
        self.restore(weights)

    def restore(self, state):
        compare_specs(tensor_specs(state), tensor_specs(self.weights()), "training state")
        self.count = load(state)["count"].copy()


class Corrected(Counting):
    """A correction adds its scale, in two halves."""

    can_correct = True
    others = ()  # episodes of other goals

    def correct(self, shown, seed, check, others):
        check()
        check()
        self.others = others
        self.count += sum(correction.scale for correction in {correction for _, correction in shown})
        return {"loss": 0.0}


class Wider(Counting):
    """The next release's network, which old weights do not fit."""

    size = 30_000


class Foreign(Counting):
    """Another checkpoint of the same network."""

    lineage = OTHER
