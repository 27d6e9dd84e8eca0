"""The motion edit: the last step after a frozen policy, which corrects the tool motions that it answers with.

It is all that is learnt of a policy whose network nobody trains. LeRobot's pipelines save it beside the policy's
weights, and it names those by their sha256.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from lerobot.configs.types import PipelineFeatureType, PolicyFeature
from lerobot.processor.pipeline import PolicyActionProcessorStep, ProcessorStepRegistry
from safetensors.torch import save
from torch import Tensor

from engram.core.errors import InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import EE_ACTION_DIM

NAME = "engram_motion_edit"
"""As LeRobot has it registered."""
SHAPES = {"matrix": (3, 3), "shift": (3,)}
"""Its tensors, float64."""
BASE = "base_sha256"
"""What names the base in the metadata of an edit that travels."""


@dataclass
@ProcessorStepRegistry.register(name=NAME)
class MotionEditStep(PolicyActionProcessorStep):
    """Makes ``matrix @ t + shift`` of the translation ``t`` of a relative tool motion, all within -1 to 1.

    One that changes nothing hands on the policy's answer bit for bit.
    """

    base_sha256: str
    """Of the weight file of the policy whose motions it corrects."""

    def __post_init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    @classmethod
    def of(cls, base_sha256: str, correction: MotionCorrection) -> MotionEditStep:
        """Return the edit of the policy with these weights that does what ``correction`` does."""
        made = cls(base_sha256)
        made.load_state_dict(
            {"matrix": torch.from_numpy(correction.matrix()), "shift": torch.from_numpy(correction.shift)}
        )
        return made

    @property
    def loaded(self) -> bool:
        """Whether it has its numbers: a pipeline makes the step first."""
        return bool(self._state)

    @property
    def correction(self) -> MotionCorrection:
        """What it does to a motion."""
        return MotionCorrection.of(self._state["matrix"].numpy(), self._state["shift"].numpy())

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        identity = torch.eye(3, dtype=torch.float64)
        return not (torch.equal(self._state["matrix"], identity) and not self._state["shift"].any())

    def packed(self) -> bytes:
        """Return it as a safetensors file that names its base: what travels to robots."""
        return save(self._state, metadata={BASE: self.base_sha256})

    @property
    def digest(self) -> str:
        """The sha256 of :meth:`packed`."""
        return hashlib.sha256(self.packed()).hexdigest()

    def action(self, action: Tensor) -> Tensor:
        """Return actions (..., 7) with their motions corrected.

        Raises:
            InvalidInputError: the numbers of the edit were not loaded, or the actions are no tool motions.
        """
        if not self.loaded:
            raise InvalidInputError(f"{NAME}: its state was not loaded; its checkpoint lacks the state_file")
        if action.shape[-1] != EE_ACTION_DIM:
            raise InvalidInputError(
                f"{NAME}: actions of {action.shape[-1]} numbers, expected the {EE_ACTION_DIM} of a relative tool motion"
            )
        if not self.changes:
            return action
        matrix, shift = (self._state[name].to(action.device) for name in SHAPES)
        motion = action[..., :3].to(torch.float64).clamp(-1.0, 1.0) @ matrix.T + shift
        return torch.cat((motion.clamp(-1.0, 1.0).to(action.dtype), action[..., 3:]), dim=-1)

    def get_config(self) -> dict[str, Any]:
        """Return what is saved beside the state."""
        return {"base_sha256": self.base_sha256}

    def state_dict(self) -> dict[str, Tensor]:
        """Return ``matrix`` (3, 3) and ``shift`` (3,)."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take the numbers of a saved edit.

        Raises:
            WeightsError: they are none, not finite, or beyond what a correction may be; nothing has changed.
        """
        found = {name: (tuple(one.shape), one.dtype) for name, one in state.items()}
        if found != (wanted := {name: (shape, torch.float64) for name, shape in SHAPES.items()}):
            raise WeightsError(f"{NAME}: tensors {found}, expected {wanted}")
        for name, one in state.items():
            if not torch.isfinite(one).all():
                raise WeightsError(f"{NAME}: tensor {name!r} holds a value that is not finite")
        try:
            MotionCorrection.of(state["matrix"].cpu().numpy(), state["shift"].cpu().numpy())
        except InvalidInputError as error:
            raise WeightsError(f"{NAME}: {error}") from error
        self._state = {name: one.detach().cpu().clone() for name, one in state.items()}

    def transform_features(
        self, features: dict[PipelineFeatureType, dict[str, PolicyFeature]]
    ) -> dict[PipelineFeatureType, dict[str, PolicyFeature]]:
        """Keep the features: an action stays one."""
        return features
