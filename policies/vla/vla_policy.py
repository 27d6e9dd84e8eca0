"""Runs a policy that is registered with LeRobot behind the core's :class:`Policy` contract."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engram.core.context_rows import MEMORY_AGE_KEY, MEMORY_MASK_KEY, MEMORY_PLACE_KEY, MEMORY_TOKENS_KEY
from engram.core.contracts import FeaturePolicy, Kinematics, Policy, StatefulPolicy
from engram.core.control import ControlConfig, proprioception
from engram.core.errors import EngramError, InvalidInputError, unknown_name
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import ActionChunk, Features, Lineage, MemoryTokens, Observation
from engram.policies.checkpoint import read_weights, sha256
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.lerobot.policy_config import PolicyConfig
from engram.policies.lerobot.robot_features import alike
from engram.policies.motion_edits import edit_behind, editable, no_edit, read_edit, with_edit
from engram.policies.vla.contract import Percept
from engram.policies.vla.flow import Guide
from engram.policies.vla.network import EngramVLA, encoder_digest
from engram.policies.vla.recurrent_state import ABLATIONS, NO_CONTEXT, RecurrentState

if TYPE_CHECKING:
    from engram.policies.vla.real_time_chunking import RealTimeChunking

_IMAGE_PREFIX = "observation.images."


class _Answer(NamedTuple):
    """A chunk in normalised units."""

    stamp_ns: int
    chunk: Tensor  # (1, h, a) normalised


class VlaPolicy(Policy, StatefulPolicy, FeaturePolicy):
    """Observations and an instruction -> action chunks of relative tool motions.

    A network with a sequence memory encodes and writes every observation; one without encodes only when it acts.

    The sampling noise of a chunk is a function of (seed, control step) alone: two processes that see the same give
    the same bits, as long as both run torch with the same number of threads.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        preprocess: Any,
        postprocess: Any,
        kinematics: Kinematics,
        robot: RobotConfig = PANDA_2F85,
        *,
        version: str,
        lineage: Lineage | None = None,
        control: ControlConfig | None = None,
        real_time: RealTimeChunking | None = None,
        ablation: str = "",
        instructions: tuple[str, ...] = (),
    ) -> None:
        """Wrap ``policy`` with LeRobot's processor pipelines, as saved beside its weights.

        With ``real_time`` a chunk continues the one before it. ``ablation`` is one of
        ``engram.policies.vla.recurrent_state.ABLATIONS`` or ``NO_CONTEXT``. ``instructions`` are those it was trained
        on, as far as its card tells: a learner sees to it that they are not unlearnt.

        Raises:
            UnknownNameError: there is no such ablation.
            InvalidInputError: the ablation does not apply to the policy; robot or control rate are not the policy's.
        """
        _check_ablation(ablation, policy)
        control = control or ControlConfig()
        _check_fit(policy.config, robot, control)
        self._policy = policy.eval()
        self.preprocess = preprocess
        self.postprocess = postprocess
        if lineage is not None and not isinstance(policy.config, EngramVLAConfig):  # a frozen backbone
            self.postprocess = editable(postprocess, lineage.root)
        self.kinematics = kinematics
        self.robot = robot
        self.control = control
        self.cameras = tuple(key.removeprefix(_IMAGE_PREFIX) for key in sorted(policy.config.image_features))
        self.real_time = real_time
        self._weights_version = version
        self._lineage = lineage
        self._ablation = ablation
        self.instructions = instructions
        self._encoder: str | None = None  # digest of all weights but the action head's, once it was asked for
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, including the previous episode, which ``swapped`` would read."""
        self._remembered = RecurrentState("" if self._ablation == NO_CONTEXT else self._ablation)
        self.reset("")

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode; ``seed`` fixes the sampling noise."""
        self.instruction, self.episode, self.seed = instruction, episode, seed
        self._first_ns: int | None = None
        self._observation: Observation | None = None
        self._memory: MemoryTokens | None = None
        self._remembered.forget(seed)
        self._seen: dict[str, Any] | None = None  # the newest observation, preprocessed
        self._percept: Percept | None = None  # its encoding, with memory read
        self._running: _Answer | None = None  # the running chunk, for real-time chunking
        self._newest: _Answer | None = None

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step; a second call with the same stamp changes nothing."""
        if self._observation is not None and observation.stamp_ns == self._observation.stamp_ns:
            return
        if self._first_ns is None:
            self._first_ns = observation.stamp_ns
        self._observation, self._memory = observation, None if self._ablation == NO_CONTEXT else memory
        self._seen = self._percept = None
        if self.remembers:
            self._understand()

    def act(self) -> ActionChunk:
        """Return the chunk that answers the newest observation; raises EngramError when there is none yet."""
        if self._observation is None:
            raise EngramError("VlaPolicy.act: nothing observed since reset")
        observation, memory, policy = self._observation, self._memory, self._policy
        with self._without_gradients():
            batch, percept = self._understand()
            guide = self._guide(observation.stamp_ns)
            noise = self._noise(observation, policy)
            chunk = policy.predict_action_chunk(batch, noise=noise, percept=percept, guide=guide)
            self._newest = _Answer(observation.stamp_ns, chunk)
            actions = self.postprocess(chunk)[0].numpy().astype(np.float64)
        return ActionChunk(
            stamp_ns=observation.stamp_ns,
            episode=self.episode,
            space="ee_delta",
            actions=np.clip(actions, -1.0, 1.0),
            dt_s=self.control.control_dt_s,
            execute_steps=policy.config.n_action_steps,
            policy_version=self.version,
            memory_ids=self._read(memory),
        )

    def load_weights(self, path: Path, version: str) -> None:
        """Swap to the safetensors file ``path``; raises WeightsError and keeps the old weights if it does not fit.

        Beside a frozen backbone that is its memory, or a motion edit of the weights in use. A memory comes without an
        edit.
        """
        path, edit = Path(path), self.motion_edit
        if edit is not None and (fresh_edit := read_edit(path, edit.base_sha256)) is not None:
            self.postprocess, self._weights_version = with_edit(self.postprocess, fresh_edit), version
            return
        tensors = read_weights(path, self._policy)
        fresh = copy.deepcopy(self._policy)
        fresh.load_state_dict(tensors)
        if edit is not None:
            self.postprocess = with_edit(self.postprocess, no_edit(sha256(path)))
        self._policy, self._weights_version = fresh.eval(), version
        self._percept = None  # the new network encodes again; the memory's state stays
        self._encoder = None

    def features(self) -> Features | None:
        """Return what the action head is conditioned by at the newest observation; None for a network of another kind.

        A correction of the motions changes the head alone: features of before and after are the same.
        """
        model = self._policy.model
        if self._observation is None or not isinstance(model, EngramVLA):
            return None
        with self._without_gradients():
            batch, percept = self._understand()
            condition = model.condition(dict(batch), percept)
        if self._encoder is None:
            self._encoder = encoder_digest(model)
        return Features(self._encoder, condition[0].numpy())

    def memory_state(self) -> Mapping[str, np.ndarray]:
        """Return the sequence memory of the running episode; empty without one or before the first step."""
        if self._first_ns is None or not self.remembers:
            return {}
        return self._remembered.arrays() | {"first_ns": np.array(self._first_ns, np.int64)}

    def restore_memory(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what ``memory_state`` returned; raises InvalidInputError if it is of another memory."""
        self._remembered.restore(self._policy.model, arrays)
        self._first_ns = int(arrays["first_ns"])

    def remembered(self) -> str:
        """Describe the sequence memory in a few words."""
        if self._policy.model.recall is None:
            return "nothing: it has no memory"
        return self._remembered.described(self._policy.model.recall.memory)

    @property
    def remembers(self) -> bool:
        """Whether the network has a sequence memory."""
        return self._policy.model.recall is not None

    @property
    def reads_context(self) -> bool:
        """Whether it acts on the tokens of memory/context that it is given."""
        return self._policy.model.reads_context and self._ablation != NO_CONTEXT

    @property
    def adaptive_m(self) -> float:
        """The configured difference of two chunks at which it switches to the new one [m]; 0 = it does not switch."""
        return float(self._policy.config.adaptive_m)

    @property
    def network(self) -> NetworkPolicy:
        """The LeRobot policy with the weights in use; a copy of it is what a learner trains on."""
        return self._policy

    @property
    def motion_edit(self) -> MotionEditStep | None:
        """What corrects the motions of a frozen backbone; None: the network is trained itself, or names no lineage."""
        return edit_behind(self.postprocess)

    @property
    def image_sizes(self) -> Mapping[str, tuple[int, int]]:
        """Height and width that the policy was trained with [px], by camera."""
        features = self._policy.config.image_features
        return {name: features[f"{_IMAGE_PREFIX}{name}"].shape[1:] for name in self.cameras}

    @property
    def version(self) -> str:
        """The version of the weights in use, and what the memory is spoilt by."""
        return self._weights_version + (f"-{self._ablation}" if self._ablation else "")

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of its weights."""
        return self._lineage

    @property
    def ablation(self) -> str:
        """What its memory is spoilt by; empty = nothing."""
        return self._ablation

    def _read(self, memory: MemoryTokens | None) -> tuple[str, ...]:
        """Return the ids of the tokens in ``memory`` that actions are based on; none if it does not act on them."""
        if memory is None or not self.reads_context:
            return ()
        return tuple(np.array(memory.source_ids)[memory.mask].tolist())

    def _guide(self, stamp_ns: int) -> Guide | None:
        """Return the guide that ties the chunk for ``stamp_ns`` to the running one; None = none."""
        if self._newest is not None and self._newest.stamp_ns < stamp_ns:
            self._running = self._newest
        if self.real_time is None or self._running is None:
            return None
        done = round((stamp_ns - self._running.stamp_ns) / (self.control.control_dt_s * 1e9))
        left = self._running.chunk[:, done:]
        return functools.partial(self.real_time.guide, left=left) if left.shape[1] else None

    def _without_gradients(self) -> AbstractContextManager[None]:
        """Return the mode to compute in: torch's fastest, unless a guide needs gradients of its own on the way."""
        return torch.inference_mode() if self.real_time is None else torch.no_grad()

    def _understand(self) -> tuple[dict[str, Any], Percept | None]:
        """Return the newest observation, preprocessed, and, with a sequence memory, its encoding."""
        observation = self._observation
        assert observation is not None and self._first_ns is not None
        with self._without_gradients():
            if self._seen is None:
                self._seen = self.preprocess(self._batch(observation, self._memory))
            if self._percept is None and self.remembers:
                time_s = (observation.stamp_ns - self._first_ns) / 1e9
                self._percept = self._remembered.percept(self._policy.model, self._seen, observation.stamp_ns, time_s)
        return self._seen, self._percept

    def _batch(self, observation: Observation, memory: MemoryTokens | None) -> dict[str, Any]:
        """Return what LeRobot's dataset would give for this observation, one sample, as the preprocessor takes it."""
        batch: dict[str, Any] = {f"{_IMAGE_PREFIX}{name}": self._picture(observation, name) for name in self.cameras}
        batch["observation.state"] = torch.from_numpy(proprioception(observation.joints, self.kinematics, self.robot))
        batch["task"] = self.instruction
        if memory is not None and len(memory.tokens):
            batch |= {
                MEMORY_TOKENS_KEY: torch.tensor(memory.tokens)[None],
                MEMORY_AGE_KEY: torch.tensor(memory.age_s)[None],
                MEMORY_PLACE_KEY: torch.tensor(memory.place)[None],
                MEMORY_MASK_KEY: torch.tensor(memory.mask)[None],
            }
        return batch

    def _picture(self, observation: Observation, name: str) -> Tensor:
        """Return what camera ``name`` shows (3, H, W) uint8.

        Raises:
            InvalidInputError: a network of ours, which makes every picture as small and as square as its own, was
                trained on another aspect ratio: things would be squeezed.
        """
        color = observation.camera(name).color
        _, *trained = self._policy.config.image_features[f"{_IMAGE_PREFIX}{name}"].shape
        height, width = color.shape[:2]
        if isinstance(self._policy.config, EngramVLAConfig) and not alike(height, width, *trained):
            raise InvalidInputError(
                f"camera {name!r}: {height} x {width} px; this policy was trained on {trained[0]} x {trained[1]} px: "
                "crop the images to that aspect ratio, or train on images of this one"
            )
        return torch.tensor(color).permute(2, 0, 1)

    def _noise(self, observation: Observation, policy: NetworkPolicy) -> Tensor:
        """Return the noise (1, h, a) of this episode and control step."""
        assert self._first_ns is not None
        step = round((observation.stamp_ns - self._first_ns) / (self.control.control_dt_s * 1e9))
        rng = np.random.default_rng((self.seed % 2**63, step % 2**63))
        shape = (1, *policy.model.noise_shape)
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def _check_ablation(ablation: str, policy: NetworkPolicy) -> None:
    if ablation not in (*ABLATIONS, NO_CONTEXT):
        raise unknown_name("ablation", ablation, (*ABLATIONS[1:], NO_CONTEXT))
    if ablation == NO_CONTEXT and not policy.model.reads_context:
        raise InvalidInputError(f"ablation {ablation!r}: this policy does not act on memory/context")
    if ablation in ABLATIONS[1:] and policy.model.recall is None:
        raise InvalidInputError(f"ablation {ablation!r}: this policy has no memory of its episode to spoil")


def _check_fit(config: PolicyConfig, robot: RobotConfig, control: ControlConfig) -> None:
    """Raise InvalidInputError where a network of ours was trained on another kind of arm, or at another rate."""
    if not isinstance(config, EngramVLAConfig):
        return  # what a backbone of LeRobot's takes, its own processors say
    assert config.robot_state_feature is not None
    numbers, has = robot.state_dim, config.robot_state_feature.shape[0]
    if has != numbers:
        raise InvalidInputError(
            f"robot {robot.name!r}: its state has {numbers} numbers, this policy was trained with {has}"
        )
    if abs(config.step_s - control.control_dt_s) > 1e-3:
        raise InvalidInputError(
            f"control_dt_s {control.control_dt_s:g}: this policy was trained with steps of {config.step_s:g} s "
            "(step_s in its config.json)"
        )
