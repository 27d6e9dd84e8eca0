"""Chunks that grow out of the one that still runs."""

from __future__ import annotations

from lerobot.configs import RTCAttentionSchedule
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.policies.rtc.modeling_rtc import RTCProcessor
from torch import Tensor

from engram.core.errors import InvalidInputError
from engram.policies.vla.flow import Velocity


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
