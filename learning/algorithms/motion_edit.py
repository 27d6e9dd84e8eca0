"""Practice of a policy whose network nobody trains: a correction that was found stays in force behind it.

Any policy that LeRobot runs can be the base: ACT, Diffusion, SmolVLA, pi0. Its weights stay as they are. What is
learnt is a motion edit of a few numbers (:mod:`engram.policies.motion_edits`), which names its base by sha256; that is
all that travels to robots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import CannotTrainError, InvalidInputError
from engram.core.motion_correction import MotionCorrection
from engram.learning.algorithms.contract import Algorithm
from engram.policies.lerobot.lerobot_policy import LeRobotPolicy
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from engram.policies.motion_edits import unpacked
from engram.policies.vla.vla_policy import VlaPolicy

if TYPE_CHECKING:
    from engram.learning.replay.buffer import Batch, Episode, Windows


def frozen(policy: Policy) -> str:
    """Return in words why the network of ``policy`` is not trained; empty: it is one of ours, or nobody knows it."""
    if not isinstance(policy, LeRobotPolicy | VlaPolicy) or isinstance(policy.network, EngramVLAPolicy):
        return ""
    kind = policy.network.config.type
    return f"{policy.version}: a policy of type {kind} is frozen, and practises by corrections alone"


class MotionEdit(Algorithm):
    """Keeps the network of ``policy``, and composes each correction with the edit in force.

    Raises:
        CannotTrainError: the policy is not frozen, names no lineage, or gives joint positions.
    """

    can_correct = True

    def __init__(self, policy: Policy) -> None:
        self.frozen = frozen(policy)
        if not isinstance(policy, LeRobotPolicy | VlaPolicy) or not self.frozen:
            raise CannotTrainError(f"{policy.version}: a motion edit is for a policy of LeRobot's, whose network stays")
        if policy.lineage is None:
            raise CannotTrainError(f"{policy.version} names no lineage: nothing says which experience is its own")
        if policy.motion_edit is None:
            raise CannotTrainError(f"{self.frozen}: of tool motions, and this one gives joint positions")
        self.lineage = policy.lineage
        self._edit = policy.motion_edit

    def update(self, batch: Batch | Windows | Sequence[Episode], seed: int) -> Mapping[str, float]:
        """Raise CannotTrainError: there is nothing to update."""
        raise CannotTrainError(self.frozen)

    def correct(
        self,
        shown: Sequence[tuple[Batch | Windows, MotionCorrection]],
        seed: int,
        check: Callable[[], None] = lambda: None,
        others: Sequence[Episode] = (),
    ) -> Mapping[str, float]:
        """Let the motions be corrected from now on, after what corrects them already, whatever the goal.

        Raises:
            InvalidInputError: what is shown has different corrections, as for several kinds of goal; or nothing
                changes, as no correction may be larger.
        """
        found = list(dict.fromkeys(correction for _, correction in shown))
        if len(found) != 1:
            raise InvalidInputError(
                f"{self.frozen}: a correction holds for all of its goals, and {len(found)} were found that disagree: "
                f"{'; '.join(map(str, found))}"
            )
        before = self._edit.correction
        after = before.then(found[0])
        if after == before:
            raise InvalidInputError(f"{self.frozen}: motions {before} already, which {found[0]} does not change")
        self._edit = MotionEditStep.of(self._edit.base_sha256, after)
        return {"loss": 0.0}

    def weights(self) -> bytes:
        """Return the edit in force as a safetensors file."""
        return self._edit.packed()

    def save(self) -> bytes:
        """Return the edit in force: there is no other state."""
        return self.weights()

    def restore(self, state: bytes) -> None:
        """Go on from :meth:`save`; raises WeightsError, and changes nothing, unless it is an edit of the same base."""
        self.begin(state)

    def begin(self, weights: bytes) -> None:
        """Begin anew from ``weights``; raises WeightsError, and changes nothing, unless they are an edit of the same
        base."""
        self._edit = unpacked(weights, self._edit.base_sha256)

    def shrink(self, feature: str, images: np.ndarray) -> np.ndarray:
        """Return a pixel of each of the images: nothing looks at them, and replay has to keep something."""
        return np.ascontiguousarray(images[..., :1, :1])
