"""Train ``engram_vla``, or a memory beside a frozen backbone, by imitation from a LeRobotDataset, on as many processes
as there are cores to give.

Everything random is a function of (seed, step, rank), so that a run that was stopped resumes to the same bits. With
``window`` the samples are whole episodes, walked through in windows (see :mod:`engram.policies.training.sequences`).
"""

from __future__ import annotations

import builtins
import copy
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata
from lerobot.policies.factory import make_pre_post_processors
from lerobot.utils.feature_utils import dataset_to_policy_features
from torch import Tensor
from tqdm import tqdm

from engram.core.child import end_with_parent
from engram.core.durable import write_atomic
from engram.core.errors import EngramError, InvalidInputError
from engram.core.lock import WriterLock
from engram.core.notices import hush_datasets
from engram.core.paths import check_free
from engram.core.provenance import commit, dataset_hash
from engram.core.robot import RobotConfig
from engram.policies.checkpoint import (
    CARD,
    WEIGHTS,
    export,
    load_training_state,
    read_card,
    read_weights,
    save_training_state,
    size,
)
from engram.policies.foreign_code import processor_folder
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.lerobot.policy_config import other_fields
from engram.policies.lerobot.processor_engram_vla import (
    DownsampleImages,
    make_engram_vla_pre_post_processors,
    of_shrunk_images,
)
from engram.policies.motion_edits import edit_behind
from engram.policies.opening import checkpoint_folder
from engram.policies.source import Source
from engram.policies.training.frames import FrameFeed, Frames, load_frames
from engram.policies.training.processes import average_gradients, gather_states, keep_freed_memory, training_device
from engram.policies.training.resuming import check_resumable, walk
from engram.policies.training.sequences import EpisodeStreams, SequenceFeed
from engram.policies.training.train_config import TrainConfig, check, check_out, resolved

FRESH = ("model.recall.", "model.memory.rank", "model.memory.where")
"""Weights that begin anew where ``start_from`` has none or others: the episode's memory, and how a context is told."""


CONTEXT = "model.memory."
GATE = f"{CONTEXT}gate"
"""Weights that read memory/context, and how far they count; all zero before training."""


class Evaluator(Protocol):
    """Measures the trained policy in simulation, which this package does not know."""

    def tasks(self, groups: Iterable[str]) -> list[str]:
        """Return those ``groups`` of a dataset that can be evaluated; raises InvalidInputError if there are none."""
        ...

    def robot(self, name: str | None, state: int) -> RobotConfig:
        """Return the robot that a dataset calls ``name`` (None: not at all), and that has ``state`` numbers in its
        state; raises InvalidInputError if there is none."""
        ...

    def evaluate(self, policy: Path, tasks: Sequence[str], robot: RobotConfig, episodes: int) -> dict[str, Any]:
        """Return the report on the policy in folder ``policy`` on ``robot``, as JSON keeps it."""
        ...


def main(config: TrainConfig, evaluator: Evaluator | None = None) -> Path:
    """Train and return the folder of the exported policy; ``evaluator`` measures it where the config wants that.

    Raises:
        EngramError: the config cannot be (see :func:`check`), another process trains into ``out`` (StoreLockedError),
            or the dataset, the loss or a weight holds a value that is not finite.
    """
    config = resolved(config)
    check(config)
    if config.evaluate and evaluator is None:
        raise InvalidInputError(
            "evaluate: this command knows no simulation; use `engram train`, or `engram eval` after it"
        )
    frames = decoded(config)  # decoded once, before any other process needs them
    frames.sampling_weights(config.balance, dict(config.emphasis))  # an unknown task is said here, not in a process
    if config.resume:
        world = int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else config.processes
        check_resumable(config, len(frames), world)  # here, not in a process
    if evaluator is not None and config.evaluate:  # better now than after hours of training
        evaluator.tasks(frames.groups)
        _recorded_robot(config, evaluator)
    lock = WriterLock(Path(config.out)) if os.environ.get("RANK", "0") == "0" else None  # torchrun's first process
    try:
        check_out(config)  # another process may have ended just now
        return _trained(config, evaluator)
    finally:
        if lock is not None:
            lock.release(tidy=True)


def _trained(config: TrainConfig, evaluator: Evaluator | None) -> Path:
    if "RANK" in os.environ:
        _worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), config, "env://")
    elif config.processes == 1:
        _worker(0, 1, config, "")
    else:
        meeting = Path(config.out).resolve() / f".meeting-{os.getpid()}"
        meeting.unlink(missing_ok=True)  # of a killed process with the same id
        try:
            arguments = (os.getpid(), config.processes, config, f"file://{meeting}")
            torch.multiprocessing.spawn(_spawned, arguments, nprocs=config.processes)
        except torch.multiprocessing.ProcessRaisedException as error:
            if told := _on_purpose(error):
                raise EngramError(told) from error
            raise
        finally:
            meeting.unlink(missing_ok=True)
    policy = Path(config.out) / "policy"
    if evaluator is not None and config.evaluate and not config.stop_after and int(os.environ.get("RANK", "0")) == 0:
        card = json.loads((policy / CARD).read_text())
        robot = _recorded_robot(config, evaluator)
        report = evaluator.evaluate(policy, evaluator.tasks(card["tasks"]), robot, config.evaluate)
        write_atomic(policy / CARD, (json.dumps({**card, "evaluation": report}, indent=1) + "\n").encode())
    return policy


def _recorded_robot(config: TrainConfig, evaluator: Evaluator) -> RobotConfig:
    meta = LeRobotDatasetMetadata("local/train", root=Path(config.dataset))
    return evaluator.robot(meta.robot_type, meta.features["observation.state"]["shape"][0])


def _on_purpose(error: Exception) -> str:
    """Return the text of an EngramError or OSError that a process of the training raised, by its traceback in
    ``error``."""
    kind, _, text = str(error).strip().rpartition("\n")[2].partition(": ")
    known = getattr(builtins, kind, None)
    ours = isinstance(known, type) and issubclass(known, OSError)
    return text if ours or kind.startswith("engram.core.errors.") else ""


def _spawned(rank: int, parent: int, world: int, config: TrainConfig, meeting: str) -> None:
    end_with_parent(parent)  # torch's own way is SIGINT, which is ignored in what a shell began with &
    _worker(rank, world, config, meeting)


def _worker(rank: int, world: int, config: TrainConfig, meeting: str) -> None:
    """Run one process of the training."""
    torch.set_num_threads(1)
    hush_datasets()
    keep_freed_memory()
    if world > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    try:
        Trainer(config, rank, world).run()
    finally:
        if world > 1:
            dist.destroy_process_group()


class Trainer:
    """One process of a training run; process 0 logs and saves."""

    def __init__(self, config: TrainConfig, rank: int = 0, world: int = 1) -> None:
        self.config, self.rank, self.world = config, rank, world
        self.out = Path(config.out)
        self.frames = decoded(config)
        self.device = training_device(config.device, int(os.environ.get("LOCAL_RANK", rank)))
        meta = LeRobotDatasetMetadata("local/train", root=config.dataset)
        torch.manual_seed(config.seed)
        self.policy = self._fresh(meta).train()
        if config.start_from:
            weights = read_weights(checkpoint_folder(config.start_from) / WEIGHTS, self.policy, fresh=FRESH)
            if GATE in weights and not weights[GATE].any():  # it has never read a context: what it would do is chance
                weights |= {n: w for n, w in self.policy.state_dict().items() if n.startswith(CONTEXT)}
            self.policy.load_state_dict(weights)
        self.policy.to(self.device)
        self.ema = copy.deepcopy(self.policy).eval().requires_grad_(False)
        self.preprocess, self.postprocess = self._processors(meta)
        self.optimizer = torch.optim.AdamW(
            _parameter_groups(self.policy, config.weight_decay), config.learning_rate, fused=True
        )
        self.dataset_sha256 = dataset_hash(config.dataset) if rank == 0 else ""
        self.feed = self._feed(meta.fps)
        self.step = 0
        self.trained_s = 0.0
        self.share = 0.0  # of the training that is over, as all processes see it
        self.frozen = self.finished = self.save_due = False
        self._saved = time.monotonic()
        if config.resume:
            self._resume()

    def run(self) -> None:
        """Train to the last step, with logs and checkpoints.

        Raises:
            EngramError: checkpoints do not fit on the disk, or cannot be written; or see :meth:`update`.
        """
        config = self.config
        self._agree(self._too_large() if self.rank == 0 else "")
        end = min(config.steps, config.stop_after or config.steps)
        begun = time.monotonic() - self.trained_s
        losses: list[float] = []
        for _ in self._progress(end):
            losses.append(self.update())
            self.trained_s = time.monotonic() - begun
            if self.finished:
                break
            if self.rank == 0 and self.step % config.log_steps == 0:
                self._log(float(np.mean(losses)))
                losses.clear()
            if self.save_due:
                self.save()
        self.save()
        if self.world > 1:
            dist.barrier()

    def update(self) -> float:
        """Take one optimiser step and return the loss.

        Raises:
            EngramError: the loss or its gradient is not finite, in any process; the weights stay as they were.
        """
        config = self.config
        if config.freeze_perception and not self.frozen and self.share >= config.perception_share:
            if self.step > 0:
                self.policy.load_state_dict(self.ema.state_dict())
            self._freeze()
        torch.manual_seed(_mix(config.seed, self.step, self.rank))
        with self._autocast():
            loss = self.feed.loss(self.policy, self.device)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        due = self.rank == 0 and time.monotonic() - self._saved > 60 * config.checkpoint_minutes
        said = torch.tensor([self._spent(), float(due), float(not loss.isfinite())])
        if self.world > 1:
            said = average_gradients(self.policy.parameters(), self.world, said)
        self.share, self.save_due = float(said[0]), bool(said[1] > 0)
        self.finished = self.share >= 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * schedule(self.step, config.warmup_steps, self.share)
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config.gradient_norm)
        if said[2] > 0 or not norm.isfinite():
            raise self._diverged("the loss or its gradient is not finite")
        self.optimizer.step()
        self.step += 1
        self._average_weights()
        return float(loss.detach())

    def save(self) -> None:
        """Write the training state and export the averaged weights; every process takes part.

        Raises:
            EngramError: weights are not finite, or cannot be written, in any process; what was saved before is kept.
        """
        if not all(parameter.isfinite().all() for parameter in self.policy.parameters()):
            raise self._diverged("weights are not finite")
        self._saved = time.monotonic()
        carried = gather_states(self.feed.carried or {}, self.rank, self.world)
        self._agree(self._written(carried) if self.rank == 0 else "")

    def _agree(self, failed: str) -> None:
        """Raise EngramError in every process for what ``failed`` in process 0; empty: nothing."""
        told = [failed]
        if self.world > 1:  # or the others would tell that process 0 is gone, and not why
            dist.broadcast_object_list(told)
        if told[0]:
            raise EngramError(told[0])

    def _too_large(self) -> str:
        """Return why checkpoints do not fit on the disk, empty if they do."""
        exported = size(self.ema.state_dict().values())
        moments = 2 * size(p for p in self.policy.parameters() if p.requires_grad)  # of AdamW
        state = 2 * exported + moments
        try:
            check_free(self.out, (1 if self.config.resume else 2) * state + exported)  # the new one beside the old
        except EngramError as error:
            return str(error)
        return ""

    def _written(self, carried: list[dict[str, Tensor]]) -> str:
        """Write state and policy; return why they cannot be written, empty if they are."""
        progress = {
            "step": self.step, "trained_s": self.trained_s, "share": self.share, "frozen": self.frozen,
            "processes": self.world, "walk": walk(self.config, len(self.frames), self.dataset_sha256),
        }  # fmt: skip
        try:
            save_training_state(self.out, self.policy, self.ema, self.optimizer, progress, carried)
            export(self.out / "policy", self.ema, self.preprocess, self.postprocess, self.card())
        except EngramError as error:
            return str(error)
        return ""

    def card(self) -> dict[str, Any]:
        """Return what is known of this checkpoint; an evaluation of the same step stays on it."""
        known = read_card(self.out / "policy") if self.config.resume else {}
        evaluated = (
            {"evaluation": known["evaluation"]} if known.get("step") == self.step and "evaluation" in known else {}
        )
        return evaluated | {
            "policy": self.policy.name,
            "command": " ".join(sys.argv),
            "train_config": asdict(self.config),
            "dataset_sha256": self.dataset_sha256,
            "step": self.step,
            "trained_minutes": round(self.trained_s / 60, 1),
            "processes": self.world,
            "frames": len(self.frames),
            "tasks": list(self.frames.groups),
            "instructions": sorted(self.frames.instructions),
            "parameters": sum(p.numel() for p in self.policy.parameters()),
            "commit": commit(),
        }

    def _diverged(self, what: str) -> EngramError:
        there = (self.out / "resume").exists()
        kept = f"the last checkpoint in {self.out} is kept" if there else f"nothing was saved in {self.out}"
        return EngramError(f"training, step {self.step}: {what}; {kept}; try a lower learning_rate")

    def _fresh(self, meta: LeRobotDatasetMetadata) -> NetworkPolicy:
        if self.config.backbone:
            from engram.policies.backbones.training import fresh_memory  # slow to import

            return fresh_memory(self.config, meta)
        policy = EngramVLAPolicy(policy_config(self.config, meta))
        policy.model.standardise_language(torch.from_numpy(self.frames.embeddings))
        return policy

    def _processors(self, meta: LeRobotDatasetMetadata) -> tuple[Any, Any]:
        if self.config.backbone:
            from engram.policies.backbones.loading import backbone_processors

            made = backbone_processors(self.policy.config)
            if edit_behind(made[1]) is not None:
                raise InvalidInputError(
                    f"backbone {self.config.backbone}: it has a motion edit, which is of its own weights alone; "
                    "expected the checkpoint that practice began with"
                )
            self.policy.config.device = self.ema.config.device = str(self.device)  # where it shall run once trained
            return made
        if self.config.start_from:
            folder = processor_folder(Source(str(checkpoint_folder(self.config.start_from))))
            made = make_pre_post_processors(self.policy.config, folder)
            _check_images(made[0], self.policy.config, self.config.start_from)
            return made
        return make_engram_vla_pre_post_processors(self.policy.config, meta.stats)

    def _feed(self, fps: float) -> FrameFeed | SequenceFeed:
        config, preprocess = self.config, of_shrunk_images(self.preprocess)
        weights = self.frames.sampling_weights(config.balance, dict(config.emphasis))
        if config.window == 0:
            return FrameFeed(self.frames, weights, config.batch_size, (config.seed, self.rank), preprocess)
        streams = EpisodeStreams(
            self.frames, config.batch_size // config.window, config.window, weights, (config.seed, self.rank)
        )
        more = (config.gradient_steps, config.foresight, config.keyframes, config.memory_dropout)
        return SequenceFeed(self.frames, streams, 1.0 / fps, preprocess, *more)

    def _resume(self) -> None:
        progress, carried = load_training_state(self.out, self.policy, self.ema, self.optimizer, self.rank)
        self.step, self.trained_s, self.share = int(progress["step"]), progress["trained_s"], progress["share"]
        self.feed.skip(self.step)
        if progress["frozen"]:
            self._freeze()
        self.feed.carried = {name: tensor.to(self.device) for name, tensor in carried.items()} or None

    def _freeze(self) -> None:
        """Understand every view now, each process its part: what the policy sees will not change."""
        assert isinstance(self.feed, SequenceFeed)
        freeze_perception(self.policy)
        self.feed.freeze(self.policy.model, self.device, self.config.frozen_draws, (self.rank, self.world))
        self.frozen = True

    def _autocast(self) -> torch.autocast:
        half = self.config.precision == "bfloat16" or (self.config.precision == "auto" and self.device.type == "cuda")
        return torch.autocast(self.device.type, torch.bfloat16, enabled=half)

    @torch.no_grad()
    def _average_weights(self) -> None:
        decay = min(self.config.ema_decay, (1 + self.step) / (10 + self.step))
        averaged, live = list(self.ema.parameters()), list(self.policy.parameters())
        torch._foreach_lerp_(averaged, live, 1 - decay)

    def _spent(self) -> float:
        """Return the share of the training that is over, by steps or by the clock."""
        by_clock = self.trained_s / (60 * self.config.minutes) if self.config.minutes > 0 else 0.0
        return min(1.0, max(self.step / self.config.steps, by_clock))

    def _progress(self, end: int) -> Iterator[int]:
        yield from tqdm(range(self.step, end), "training", end, initial=self.step, disable=self.rank > 0, mininterval=5)

    def _log(self, loss: float) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import: only the process that logs needs it

        if not hasattr(self, "_writer"):
            self._writer = SummaryWriter(str(self.out / "logs"))
        samples = self.config.batch_size * self.world * self.step
        self._writer.add_scalar("train/loss", loss, self.step)
        self._writer.add_scalar("train/learning_rate", self.optimizer.param_groups[0]["lr"], self.step)
        self._writer.add_scalar("train/samples_per_s", samples / max(self.trained_s, 1e-9), self.step)
        self._writer.flush()


def policy_config(config: TrainConfig, meta: LeRobotDatasetMetadata) -> EngramVLAConfig:
    """Return the policy's configuration for the features of a dataset."""
    features: dict[str, PolicyFeature] = dataset_to_policy_features(meta.features)
    inputs = {k: f for k, f in features.items() if f.type in (FeatureType.VISUAL, FeatureType.STATE)}
    outputs = {k: f for k, f in features.items() if f.type is FeatureType.ACTION and k == "action"}
    wide = {k for k, f in inputs.items() if f.type is FeatureType.VISUAL and f.shape[-1] != f.shape[-2]}
    cut = {k: crop for k, crop in EngramVLAConfig().crops.items() if k not in wide}  # our table lies so in square ones
    return EngramVLAConfig(
        input_features={key: feature for key, feature in inputs.items() if key.startswith("observation.")},
        output_features=outputs,
        device="cpu",
        image_size=config.image_size,
        n_action_steps=config.n_action_steps,
        random_shift=config.random_shift,
        memory=config.memory,
        step_s=1.0 / meta.fps,
        optimizer_lr=config.learning_rate,
        scheduler_decay_steps=config.steps,
        **({"crops": cut} | other_fields(config.model, EngramVLAConfig)),
    )


def freeze_perception(policy: NetworkPolicy) -> None:
    """Leave only both memories, proprioception and the action head to be trained."""
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_(name.startswith(("recall.", "memory.", "state.", "head.")))


def schedule(step: int, warmup: int, progress: float) -> float:
    """Return the share of the peak learning rate: a straight rise, times a cosine of ``progress`` down to 0.01."""
    return min(1.0, (step + 1) / warmup) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def _check_images(preprocess: Any, wanted: EngramVLAConfig, start_from: str) -> None:
    """Raise InvalidInputError where what ``start_from`` sees is cut or shrunk otherwise than the dataset's images."""
    for step in preprocess.steps:
        if isinstance(step, DownsampleImages):
            ours, its = ((s.size, s.sizes, {k: tuple(v) for k, v in s.crops.items()}) for s in (_shrink(wanted), step))
            if ours != its:
                raise InvalidInputError(
                    f"image_size, sizes of cameras and crops {ours}: start_from {start_from!r} sees {its}"
                )


def _shrink(config: EngramVLAConfig) -> DownsampleImages:
    return DownsampleImages(config.image_size, config.camera_sizes, config.crops)


def _parameter_groups(policy: NetworkPolicy, decay: float) -> list[dict[str, Any]]:
    matrices = [p for p in policy.parameters() if p.ndim > 1]
    vectors = [p for p in policy.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def decoded(config: TrainConfig) -> Frames:
    """Return the frames of the dataset as the network sees them, from the cache if they are there."""
    root = Path(os.path.abspath(config.dataset))  # "." has no name, and a link's cache lies beside the link
    meta = LeRobotDatasetMetadata("local/train", root=root)
    if config.backbone:
        from engram.policies.backbones.training import whole_images

        whole = whole_images(meta)
        cache = Path(config.cache or root.with_name(f"{root.name}.frames-whole"))
        return load_frames(root, whole, cache, skip_idle=not config.idle_actions)
    wanted = policy_config(config, meta)
    cache = Path(config.cache) if config.cache else root.with_name(f"{root.name}.frames{config.image_size}")
    return load_frames(root, _shrink(wanted), cache, wanted.language_pieces, skip_idle=not config.idle_actions)


def _mix(seed: int, step: int, rank: int) -> int:
    """Return one torch seed for (seed, step, rank), far from those of the neighbours."""
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0])


if __name__ == "__main__":
    import tyro

    main(tyro.cli(TrainConfig))
