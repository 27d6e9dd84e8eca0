"""The part of the configuration that both our policies share: sequence memory, observations, LeRobot's presets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from lerobot.configs.policies import PreTrainedConfig
from lerobot.optim import AdamWConfig, CosineDecayWithWarmupSchedulerConfig

from engram.core.arrays import positive_int
from engram.core.context_rows import MEMORY_PREFIX
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import EMBEDDING_DIM
from engram.policies.sequence_memory import NONE, check_memory


@dataclass
class PolicyConfig(PreTrainedConfig):
    """Base of the configurations registered with LeRobot; the fields of its PreTrainedConfig come before these."""

    chunk_size: int = 16
    """Actions per chunk (horizon h)."""
    n_action_steps: int = 2
    """Rows of a chunk that are executed before the next observation is answered."""
    adaptive_m: float = 0.0
    """Default for how the policy replans: at every step, switching to the new chunk when the two differ by more than
    this [m]; see :func:`engram.policies.vla.chunking.follow`. 0 = it replans when the executed rows are used up."""
    dim: int = 128
    """Width of the cognitive token, of the memory and of its reading (d)."""
    heads: int = 4
    """Attention heads."""
    memory_dim: int = EMBEDDING_DIM
    """Length of one token of ``memory/context``."""
    context_ranks: int = 0
    """The policy is told the rank of the first so many tokens of ``memory/context``: those that fit the instruction
    best come first; 0 = it is not."""
    context_places: int = 0
    """The positions of the first so many tokens reach the action head as they are, too; 0 = by attention alone."""
    memory: str = NONE
    """Memory of the policy's own episode, of ``engram.policies.sequence_memory.MEMORIES``, or
    ``package.module:attribute`` of your own; "none" = acts by the present alone (and by ``memory/context``)."""
    memory_steps: int = 64
    """Entries that a memory keeps of single control steps."""
    memory_events: int = 16
    """Entries of the bank for the image tokens of events."""
    memory_details: int = 4
    """Image tokens that a control step writes, beside its cognitive token."""
    memory_cells_side: int = 8
    """The memory stores the colors of the salient ones of ``memory_cells_side**2`` image cells per camera and
    compares them with later images; 0 = it does not."""
    memory_surprise: float = 4.0
    """An event: the image differs from that of the last event by more than this many times the mean change per step."""
    memory_stack: int = 8
    """Steps that the frame stack holds."""
    memory_chunk: int = 8
    """Steps in a chunk of hcam and place; they keep ``memory_steps // memory_chunk`` chunks."""
    step_s: float = 0.1
    """Length of a control step [s], where observations carry no stamps: LeRobot's commands."""
    sampling_seed: int = 0
    """Seed of the noise that LeRobot's ``select_action`` draws."""
    optimizer_lr: float = 1e-3
    optimizer_weight_decay: float = 1e-3
    optimizer_grad_clip_norm: float = 1.0
    scheduler_warmup_steps: int = 200
    scheduler_decay_steps: int = 12000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("chunk_size", "dim", "heads", "memory_dim", "memory_steps", "memory_stack", "memory_chunk"):
            positive_int(name, getattr(self, name))
        for name in ("context_ranks", "context_places"):
            if getattr(self, name) < 0:
                raise InvalidInputError(f"{name}: {getattr(self, name)}, expected 0 or more")
        if not 0 < self.n_action_steps <= self.chunk_size:
            raise InvalidInputError(f"n_action_steps: {self.n_action_steps}, expected 1..{self.chunk_size}")
        if not 0.0 <= self.adaptive_m <= 1.0:
            raise InvalidInputError(f"adaptive_m: {self.adaptive_m}, expected 0..1 m")
        if self.dim % self.heads:
            raise InvalidInputError(f"dim: {self.dim}, expected a multiple of heads = {self.heads}")
        if not 0.0 < self.step_s < math.inf:
            raise InvalidInputError(f"step_s: {self.step_s}, expected a finite number of seconds above 0")
        check_memory(self.memory)

    def get_optimizer_preset(self) -> AdamWConfig:
        """Return LeRobot's AdamW with this policy's settings."""
        return AdamWConfig(
            lr=self.optimizer_lr,
            weight_decay=self.optimizer_weight_decay,
            grad_clip_norm=self.optimizer_grad_clip_norm,
        )

    def get_scheduler_preset(self) -> CosineDecayWithWarmupSchedulerConfig:
        """Return LeRobot's cosine schedule with this policy's settings."""
        return CosineDecayWithWarmupSchedulerConfig(
            peak_lr=self.optimizer_lr,
            decay_lr=self.optimizer_lr / 100,
            num_warmup_steps=self.scheduler_warmup_steps,
            num_decay_steps=self.scheduler_decay_steps,
        )

    def check_cells(self, size: int) -> None:
        """Raise InvalidInputError unless images of ``size`` pixels have that many cells."""
        if not 0 <= self.memory_cells_side <= size:
            raise InvalidInputError(f"memory_cells_side: {self.memory_cells_side}, expected 0..{size} pixels")

    def validate_features(self) -> None:
        """Raise InvalidInputError unless there is a camera, the robot's state and an action.

        A scene graph's tokens, which LeRobot takes for robot state, are neither normalised nor asked for.
        """
        inputs = self.input_features or {}
        for key in [key for key in inputs if key.startswith(MEMORY_PREFIX)]:
            del inputs[key]
        for what, there, names in (
            ("camera among the inputs", bool(self.image_features), self.input_features),
            ("observation.state among the inputs", self.robot_state_feature is not None, self.input_features),
            ("action among the outputs", self.action_feature is not None, self.output_features),
        ):
            if not there:
                raise InvalidInputError(f"{self.type}: no {what} {sorted(names or {})}")

    @property
    def observation_delta_indices(self) -> None:
        """One observation at a time."""
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        """The chunk begins with the action of the observed step."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        """No rewards."""
        return None


def other_fields(chosen: Iterable[tuple[str, float]], kind: type[PolicyConfig]) -> dict[str, Any]:
    """Return numbers of ``kind`` as keyword arguments; UnknownNameError lists those that a training leaves free."""
    given = {field.name for field in fields(PreTrainedConfig)} | set(_SET_BY_TRAINING)
    valid = [field.name for field in fields(kind) if field.name not in given and field.type in ("int", "float")]
    for name, _ in chosen:
        if name not in valid:
            raise unknown_name("field of model", name, valid)
    return {name: int(value) if float(value).is_integer() else value for name, value in chosen}


_SET_BY_TRAINING = (
    *("image_size", "random_shift", "n_action_steps", "memory", "step_s", "optimizer_lr", "scheduler_decay_steps"),
    *("backbone", "backbone_sha256"),
)
