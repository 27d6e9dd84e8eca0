"""A Trainer small enough for a test: its one weight counts the updates."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load, save


class Counting:
    """Each update adds one."""

    def __init__(self):
        self.count = np.zeros(20_000, np.float32)

    def update(self, batch, seed):
        self.count += 1
        return {"loss": 1.0 / float(self.count[0])}

    def weights(self):
        return save({"count": self.count})

    def shrink(self, feature, images):
        return np.ascontiguousarray(images)

    def save(self):
        return self.weights()

    def restore(self, state):
        self.count = load(state)["count"].copy()
