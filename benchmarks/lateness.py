"""Simulates a policy that is too slow for its control rate: answers arrive late while the robot keeps moving."""

from __future__ import annotations

from engram.core.contracts import Policy, World
from engram.core.errors import InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.types import ActionChunk, JointCommand, Observation, OracleOutcome
from engram.runtime.loop import Runtime


class LateRuntime(Runtime):
    """Runs episodes in which every answer of the policy arrives ``delay`` control steps after its observation.

    As on a robot that does not wait, the running chunk bridges the time until the answer, and
    :class:`engram.core.control.ChunkExecutor` adds the motions that the new chunk missed. Before the first answer the
    robot holds. As in the policy node, a new answer is requested ``execute_steps`` control steps after the last
    request, or, if the answer takes longer, when it arrives.
    """

    def __init__(self, world: World, policy: Policy, pipeline: CommandPipeline, *, delay: int) -> None:
        """Raises InvalidInputError for a negative ``delay`` and for a pipeline that waits (``lockstep``)."""
        super().__init__(world, policy, pipeline)
        if delay < 0:
            raise InvalidInputError(f"LateRuntime.delay: {delay}, expected 0 control steps or more")
        if pipeline.executor.lockstep:
            raise InvalidInputError("LateRuntime: the pipeline is in lock-step, it would wait for late answers")
        self.delay = delay
        self._coming: ActionChunk | None = None  # answered, but not here yet

    def _begin(self) -> None:
        super()._begin()
        self._coming = None

    def _decide(self, observation: Observation, outcome: OracleOutcome) -> JointCommand:
        self.policy.observe(observation)
        self._arrive(observation.stamp_ns)
        if self._coming is None and self.pipeline.chunk_due(observation.stamp_ns):
            self._coming = self.policy.act()
            if len(self._coming.actions) <= self.delay:
                rows = f"{len(self._coming.actions)} rows of {self.policy.version}"
                raise InvalidInputError(f"LateRuntime.delay: {self.delay}, none of the {rows} would be executed")
            self._arrive(observation.stamp_ns)
        return (self.pipeline.step(observation.joints) or self.pipeline.hold(observation.joints)).command

    def _arrive(self, now_ns: int) -> None:
        if self._coming is not None and self._coming.row(now_ns) >= self.delay:
            self.pipeline.executor.accept(self._coming)
            self._coming = None
