"""Runs a policy of LeRobot's, ACT or Diffusion say, behind the core's :class:`Policy` contract."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.core.contracts import Kinematics, Policy
from engram.core.control import ControlConfig
from engram.core.errors import EngramError, InvalidInputError
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import ActionChunk, Lineage, MemoryTokens, Observation
from engram.policies.checkpoint import load_weights, sha256
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from engram.policies.lerobot.robot_features import STATE, check_units, robot_features
from engram.policies.motion_edits import edit_behind, editable, no_edit, read_edit, with_edit

_ACTION, _IMAGES = "action", "observation.images"


class LeRobotPolicy(Policy):
    """Images, the robot's state and an instruction -> action chunks, by a policy that LeRobot implements.

    A policy that executes several rows of a chunk answers with the whole chunk. Any other is asked for one action at
    every control step, and keeps account of its steps itself: ACT with temporal ensembling, TD-MPC. A policy with a
    history of observations is given every control step.

    The random numbers of a chunk are a function of (seed, control step) alone: two processes that see the same give
    the same bits, as long as both run torch with the same number of threads.
    """

    def __init__(
        self,
        policy: Any,
        preprocess: Any,
        postprocess: Any,
        kinematics: Kinematics,
        robot: RobotConfig = PANDA_2F85,
        *,
        version: str,
        lineage: Lineage | None = None,
        control: ControlConfig | None = None,
        execute_steps: int = 0,
    ) -> None:
        """Wrap ``policy`` with LeRobot's processor pipelines, as saved beside its weights.

        ``execute_steps`` is how many rows of a chunk are executed; 0 = the policy's own setting.

        Raises:
            UnknownNameError, InvalidInputError: what it takes or gives is not the robot's, see
                :func:`engram.policies.lerobot.robot_features.robot_features`; or a motion edit is to correct joint
                positions.
        """
        renames: dict[str, str] = {}
        for step in preprocess.steps:
            renames |= getattr(step, "rename_map", {})
        self.features = robot_features(policy.config, renames, robot)
        for step in (*preprocess.steps, *postprocess.steps):
            check_units(getattr(step, "stats", None) or {}, self.features, robot)
        self._policy = policy.eval()
        self.preprocess, self.postprocess = preprocess, postprocess
        if lineage is not None and self.features.space == "ee_delta":
            self.postprocess = editable(postprocess, lineage.root)
        elif edit_behind(postprocess) is not None:
            raise InvalidInputError(
                f"{version}: a motion edit corrects tool motions of a policy that names its lineage, this one gives "
                f"actions of space {self.features.space!r}"
            )
        self.kinematics, self.robot = kinematics, robot
        self.control = control or ControlConfig()
        self._version, self._lineage = version, lineage
        config = policy.config
        own = int(getattr(config, "n_action_steps", 0) or getattr(config, "action_chunk_size", 0) or 1)
        known = self._history.keys() <= {STATE, _IMAGES}
        self.chunked = own > 1 and known and getattr(config, "temporal_ensemble_coeff", None) is None
        if execute_steps > 1 and not self.chunked:
            raise InvalidInputError(f"execute_steps {execute_steps}: {version} gives one action at a time, expected 1")
        self.execute_steps = execute_steps or (own if self.chunked else 1)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything."""
        self.reset("")

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode; ``seed`` fixes the random numbers."""
        self.instruction, self.episode, self.seed = instruction, episode, seed
        self._policy.reset()
        self._first_ns: int | None = None
        self._observation: Observation | None = None
        self._seen: dict[str, Any] | None = None  # the newest observation, preprocessed
        self._answer: ActionChunk | None = None  # to the newest observation

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step; a second call with the same stamp changes nothing."""
        if self._observation is not None and observation.stamp_ns == self._observation.stamp_ns:
            return
        if self._first_ns is None:
            self._first_ns = observation.stamp_ns
        self._observation, self._seen, self._answer = observation, None, None
        if self.chunked and self._history:
            self._extend_history(self._understand(observation))

    def act(self) -> ActionChunk:
        """Return the chunk that answers the newest observation; raises EngramError when there is none yet."""
        if self._observation is None:
            raise EngramError("LeRobotPolicy.act: nothing observed since reset")
        if self._answer is None:
            self._answer = self._answer_to(self._observation)
        return self._answer

    def load_weights(self, path: Path, version: str) -> None:
        """Swap to the safetensors file ``path``: a network, or a motion edit of the network in use.

        A network comes without an edit: that in force was of other weights.

        Raises:
            WeightsError: it does not fit, or is an edit of another base; the old weights stay.
        """
        path, edit = Path(path), self.motion_edit
        fresh = read_edit(path, edit.base_sha256) if edit is not None else None
        if fresh is None:
            policy = copy.deepcopy(self._policy)
            load_weights(policy, path)
            self._policy = policy.eval()
            fresh = no_edit(sha256(path)) if edit is not None else None
        if fresh is not None:
            self.postprocess = with_edit(self.postprocess, fresh)
        self._version = version
        self._answer = None  # the history stays: it holds observations

    @property
    def cameras(self) -> tuple[str, ...]:
        """The robot's cameras that it looks through."""
        return tuple(camera.camera for camera in self.features.cameras)

    @property
    def image_sizes(self) -> Mapping[str, tuple[int, int]]:
        """Height and width that the policy was trained with [px], by camera."""
        return {camera.camera: (camera.height, camera.width) for camera in self.features.cameras}

    @property
    def network(self) -> Any:
        """The LeRobot policy with the weights in use."""
        return self._policy

    @property
    def motion_edit(self) -> MotionEditStep | None:
        """What corrects its motions; None: it takes none, as it gives joint positions or names no lineage."""
        return edit_behind(self.postprocess)

    @property
    def version(self) -> str:
        """The version of the weights in use."""
        return self._version

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of its weights."""
        return self._lineage

    @property
    def _history(self) -> dict[str, Any]:
        """Return LeRobot's queues of past observations, by feature; empty where a policy has none."""
        queues = getattr(self._policy, "_queues", None) or {}
        return {key: queue for key, queue in queues.items() if key != _ACTION}

    def _extend_history(self, batch: dict[str, Any]) -> None:
        from lerobot.policies.utils import populate_queues  # comes with the policy

        populate_queues(self._history, batch)

    def _answer_to(self, observation: Observation) -> ActionChunk:
        batch = dict(self._understand(observation))
        with torch.no_grad(), self._random_numbers(observation.stamp_ns):
            if self.chunked:
                actions = self.postprocess(self._policy.predict_action_chunk(batch))
            else:
                actions = self.postprocess(self._policy.select_action(batch))[:, None]
        rows = self._rows(actions)
        return ActionChunk(
            stamp_ns=observation.stamp_ns,
            episode=self.episode,
            space=self.features.space,
            actions=np.clip(rows, -1.0, 1.0) if self.features.space == "ee_delta" else rows,
            dt_s=self.control.control_dt_s,
            execute_steps=self.execute_steps,
            policy_version=self.version,
        )

    def _rows(self, actions: Tensor) -> np.ndarray:
        """Return the rows (h, a) float64 of ``actions`` (1, h, a)."""
        (length,) = self._policy.config.action_feature.shape
        if actions.ndim != 3 or actions.shape[0] != 1 or actions.shape[2] != length:
            raise InvalidInputError(f"{self.version} answered {tuple(actions.shape)}, expected (1, rows, {length})")
        if actions.shape[1] < self.execute_steps:
            raise InvalidInputError(
                f"execute_steps {self.execute_steps}: {self.version} answers with {actions.shape[1]} rows, expected "
                "that many or fewer"
            )
        return actions[0].cpu().numpy().astype(np.float64)

    def _understand(self, observation: Observation) -> dict[str, Any]:
        """Return ``observation``, preprocessed."""
        if self._seen is None:
            batch: dict[str, Any] = {
                camera.feature: camera.image(observation.camera(camera.camera)) for camera in self.features.cameras
            }
            if self.features.joints_alone is not None:
                batch[STATE] = self.features.state(observation.joints, self.kinematics, self.robot)
            with torch.no_grad():
                seen = self.preprocess({**batch, "task": self.instruction})
                seen.pop(_ACTION, None)  # there is none; LeRobot's policies would look for it in their queues
                if self.chunked and _IMAGES in self._history:  # how LeRobot's policies store them
                    seen[_IMAGES] = torch.stack([seen[key] for key in self._policy.config.image_features], dim=-4)
            self._seen = seen
        return self._seen

    @contextmanager
    def _random_numbers(self, stamp_ns: int) -> Iterator[None]:
        """Seed torch for the control step at ``stamp_ns``, and leave its generators as they were."""
        assert self._first_ns is not None
        step = round((stamp_ns - self._first_ns) / (self.control.control_dt_s * 1e9))
        device = torch.device(self._policy.config.device)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(step_seed(self.seed, step))
            yield


def step_seed(seed: int, step: int) -> int:
    """Return the seed of torch's random numbers at control step ``step`` of an episode with ``seed``."""
    words = np.random.SeedSequence((seed % 2**63, step % 2**63)).generate_state(1, np.uint64)
    return int(words[0]) % 2**63
