"""Real-time chunking: new chunks that continue the running one."""

from __future__ import annotations

from torch import Tensor

from engram.core.errors import InvalidInputError
from engram.policies.vla.flow import Velocity


class RealTimeChunking:
    """Generates each new chunk so that it continues the running one (Black et al., "Real-Time Execution of Action
    Chunking Flow Policies", 2025), by LeRobot's implementation. It is for a policy whose answer arrives ``delay``
    control steps late. The first ``delay`` rows of the new chunk are tied to the running one, which is executed
    meanwhile, and the following rows less and less.
    """

    def __init__(self, delay: int) -> None:
        if delay < 1:
            raise InvalidInputError(f"RealTimeChunking.delay: {delay}, expected 1 control step or more")
        from lerobot.configs.types import RTCAttentionSchedule  # with these come all of LeRobot's policies
        from lerobot.policies.rtc.configuration_rtc import RTCConfig
        from lerobot.policies.rtc.modeling_rtc import RTCProcessor

        self.delay = delay
        self._processor = RTCProcessor(RTCConfig(prefix_attention_schedule=RTCAttentionSchedule.EXP))

    def guide(self, velocity: Velocity, left: Tensor) -> Velocity:
        """Return ``velocity`` guided towards ``left`` (B, r, a): the rest of the running chunk."""

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
