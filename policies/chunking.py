"""How chunks follow one another: averaged where they overlap, or each growing out of the one that still runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from lerobot.configs import RTCAttentionSchedule
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.policies.rtc.modeling_rtc import RTCProcessor
from torch import Tensor

from engram.core.contracts import Policy, Remembering
from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk, MemoryTokens, Observation
from engram.policies.flow import Velocity


class TemporalEnsemble(Policy, Remembering):
    """Asks at every step and averages, for each step, what all chunks that reach it say (Zhao et al., ACT, 2023).

    The chunk that is i asks old weighs exp(-decay * i) relative to the oldest, i counted from the oldest one as in
    ACT: a decay of 0 is the plain mean, a larger one trusts old chunks more. Only the gripper, a command and not a
    motion, is taken from the newest chunk alone.
    """

    def __init__(self, policy: Policy, decay: float = 0.01) -> None:
        if not decay >= 0.0:
            raise InvalidInputError(f"TemporalEnsemble.decay: {decay}, expected 0 or more")
        self.policy, self.decay = policy, decay
        self._chunks: list[ActionChunk] = []  # of this episode, oldest first

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode."""
        self.policy.reset(instruction, episode, seed)
        self._chunks = []

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step."""
        self.policy.observe(observation, memory)

    def act(self) -> ActionChunk:
        """Return the newest chunk, its rows averaged with those of older chunks for the same steps."""
        newest = self.policy.act()
        older = [c for c in self._chunks if c.stamp_ns < newest.stamp_ns and _shift(c, newest) < len(c.actions)]
        self._chunks = [*older, newest]
        actions = newest.actions.copy()
        for row in range(len(actions)):
            rows = [(c, row + _shift(c, newest)) for c in self._chunks]
            said = np.array([c.actions[at] for c, at in rows if at < len(c.actions)])
            weights = np.exp(-self.decay * np.arange(len(said)))
            actions[row, :-1] = np.average(said[:, :-1], axis=0, weights=weights)
        return replace(newest, actions=actions, execute_steps=1)

    def load_weights(self, path: Path, version: str) -> None:
        """Swap the inner policy's weights."""
        self.policy.load_weights(path, version)

    @property
    def version(self) -> str:
        """The inner policy's version."""
        return self.policy.version

    def memory_state(self) -> Mapping[str, np.ndarray]:
        """Return what the inner policy remembers; older chunks are not kept, a restart averages anew."""
        return self.policy.memory_state() if isinstance(self.policy, Remembering) else {}

    def restore_memory(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give it back to the inner policy."""
        if not isinstance(self.policy, Remembering):
            raise InvalidInputError("TemporalEnsemble: the inner policy remembers nothing")
        self.policy.restore_memory(arrays)


def _shift(chunk: ActionChunk, newer: ActionChunk) -> int:
    """Return the row of ``chunk`` that is for the first step of ``newer``."""
    return round((newer.stamp_ns - chunk.stamp_ns) / (chunk.dt_s * 1e9))


class RealTimeChunking:
    """A new chunk grows out of the one that still runs (Black et al., "Real-Time Execution of Action Chunking Flow
    Policies", 2025), by LeRobot's implementation.

    For a policy whose answer comes ``delay`` control steps late: so many rows of the new chunk are held to the old
    one, which is being executed meanwhile, and the rows after that ever more loosely.
    """

    def __init__(self, delay: int) -> None:
        if delay < 1:
            raise InvalidInputError(f"RealTimeChunking.delay: {delay}, expected 1 control step or more")
        self.delay = delay
        self._processor = RTCProcessor(RTCConfig(prefix_attention_schedule=RTCAttentionSchedule.EXP))

    def guide(self, velocity: Velocity, left: Tensor) -> Velocity:
        """Return ``velocity`` guided towards ``left`` (B, r, a): what the old chunk has for the coming r steps."""

        def guided(x: Tensor, time: Tensor) -> Tensor:
            # LeRobot's time runs from 1 (noise) to 0 (actions), and its velocity the other way round
            return -self._processor.denoise_step(
                x_t=x[:, 0],
                prev_chunk_left_over=left,
                inference_delay=self.delay,
                time=1.0 - float(time.flatten()[0]),
                original_denoise_step_partial=lambda at: -velocity(at[:, None], time)[:, 0],
                execution_horizon=left.shape[1],
            )[:, None]

        return guided
