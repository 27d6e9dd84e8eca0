"""A LeRobotDataset, decoded once: downsampled uint8 frames and chunks of actions, indexed by integers.

LeRobot decodes two images per sample, which costs as much as the network's own training step. Here every image is
decoded once, through the policy's own downsampling, into a memory-mapped array that all processes share.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from engram.core.chunk_rows import UNLEARNT_KEY, chunk_rows, ends
from engram.core.context_rows import MEMORY_KEYS, ContextBuilder, ContextRows
from engram.core.dataset_check import (
    NO_HUB,
    UNREADABLE,
    check_dataset,
    data_files,
    logged_tasks,
    reading,
    unreadable,
    used_up,
)
from engram.core.errors import DAMAGED, InvalidInputError, NonFiniteError, unknown_name
from engram.core.registry import split_options
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.lerobot.processor_engram_vla import DownsampleImages, embed_instructions
from engram.policies.vla.contract import STATE_KEY

if TYPE_CHECKING:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

LAYOUT = 2
"""Of a cache: one that was written otherwise is decoded again."""
DECODERS = 2
"""Processes that decode a dataset. They are spawned: a fork of a process with threads (torch, pyarrow) can hang."""
FRAMES_PER_DECODER = 5000
"""A smaller dataset is decoded sooner than so many processes have begun."""
BATCH = 128
"""Frames that are decoded at a time."""
_COLUMNS = ("observation.state", "action", "episode_index", "task_index")
_FLOATS, _INTEGERS = (2, np.dtype(np.float32)), (1, np.dtype(np.int64))
_ROWS = {"state": _FLOATS, "action": _FLOATS, "last": _INTEGERS, "words": _INTEGERS, "group": _INTEGERS}
"""What a cache holds of every frame beside its images: axes and type of the array."""


@dataclass(frozen=True)
class Frames:
    """All frames of a dataset, in order; row i of every array is frame i."""

    images: dict[str, np.ndarray]  # feature -> (n, 3, S, S) uint8
    state: np.ndarray  # (n, 15) float32
    action: np.ndarray  # (n, 7) float32
    last: np.ndarray  # (n,) int64: index of the last frame of the frame's episode
    words: np.ndarray  # (n,) int64: row of ``embeddings``
    group: np.ndarray  # (n,) int64: task of the frame, for balanced sampling
    view: np.ndarray  # (n,) int64: the first of the frames in a row whose images are exactly the same
    instructions: tuple[str, ...]
    groups: tuple[str, ...]
    embeddings: np.ndarray  # (instructions, (1 + pieces) * 384) float32
    idle: np.ndarray  # (n,) bool: the action commands no motion at all, and is not learnt
    context: ContextRows | None = None  # what the scene graph offered at each frame, if that was recorded

    def __len__(self) -> int:
        return len(self.action)

    def batch(self, rows: np.ndarray, horizon: int) -> dict[str, Any]:
        """Return LeRobot's batch for frames ``rows`` (b,), with chunks of ``horizon`` actions; not normalised."""
        return self.seen(rows) | self.done(rows, horizon)

    def seen(self, rows: np.ndarray) -> dict[str, Any]:
        """Return images, instruction and the scene graph's tokens of frames ``rows`` (b,)."""
        return self.shown(rows) | self.offered(rows)

    def shown(self, rows: np.ndarray) -> dict[str, Any]:
        """Return images and instruction of frames ``rows`` (b,): what stays the same while ``view`` does."""
        return self._instruction(rows) | {key: torch.from_numpy(array[rows]) for key, array in self.images.items()}

    def offered(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Return the scene graph's tokens of frames ``rows`` (b,); nothing where none were recorded."""
        found = {} if self.context is None else self.context.at(rows)
        return {key: torch.from_numpy(array) for key, array in found.items()}

    def done(self, rows: np.ndarray, horizon: int) -> dict[str, Any]:
        """Return instruction, the robot's own state and its chunk of ``horizon`` actions for frames ``rows`` (b,)."""
        action, unlearnt = chunk_rows(self.action, self.idle, self.last, self.end, rows, horizon)
        return self._instruction(rows) | {
            STATE_KEY: torch.from_numpy(self.state[rows]),
            "action": torch.from_numpy(action),
            UNLEARNT_KEY: torch.from_numpy(unlearnt),
        }

    @cached_property
    def still(self) -> np.ndarray:
        """Frames (n,) bool at which no image changes and no motion is commanded: the robot waits.

        Where cameras are covered, images alone would say so while the arm moves."""
        return (self.view != np.arange(len(self))) & self.idle

    @cached_property
    def end(self) -> np.ndarray:
        """Last frame of each frame's episode (n,) int64 at which something moves; -1 where nothing ever does."""
        return ends(self.idle, self.last)

    def _instruction(self, rows: np.ndarray) -> dict[str, Any]:
        words = self.words[rows]
        return {LANGUAGE_KEY: torch.from_numpy(self.embeddings[words]), "task": [self.instructions[i] for i in words]}

    def sampling_weights(self, power: float, emphasis: Mapping[str, float] | None = None) -> np.ndarray:
        """Return each frame's probability (n,): a task with m frames gets a share that goes with m ** power.

        ``emphasis``: these tasks, with whatever options, that many times the share beside the others'; UnknownNameError
        for one that the dataset has not.
        """
        more = emphasis or {}
        sizes = np.bincount(self.group, minlength=len(self.groups)).astype(np.float64)
        names = [split_options(group)[0] for group in self.groups]
        for name in more:
            if name not in names:
                raise unknown_name("emphasis", name, sorted(set(names)))
        share = np.where(sizes > 0, sizes**power, 0.0) * [more.get(name, 1.0) for name in names]
        per_frame = share / share.sum() / np.maximum(sizes, 1.0)
        return per_frame[self.group]


class FrameFeed:
    """Losses over single frames, drawn anew for every step."""

    carried: None = None  # nothing goes from one step to the next

    def __init__(
        self,
        frames: Frames,
        weights: np.ndarray,
        size: int,
        seed: tuple[int, int],
        preprocess: Callable[[Any], Any],
    ) -> None:
        """Draw ``size`` frames a step with the probabilities ``weights`` (n,); ``seed`` is (seed, rank)."""
        self.frames, self.size, self.seed, self.preprocess = frames, size, seed, preprocess
        self._sums = np.cumsum(weights)
        self._step = 0

    def skip(self, steps: int) -> None:
        """Go on after so many steps."""
        self._step += steps

    def loss(self, policy: NetworkPolicy, device: torch.device) -> Tensor:
        """Return the loss of the next step's sample."""
        seed, rank = self.seed
        rng = np.random.default_rng((seed, self._step, rank))
        self._step += 1
        at = np.searchsorted(self._sums, rng.random(self.size) * self._sums[-1], side="right")
        sample = self.frames.batch(np.minimum(at, len(self.frames) - 1), policy.config.chunk_size)
        return policy(on_device(self.preprocess(sample), device))[0]


def on_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return ``batch`` with its tensors on ``device``."""
    return {key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}


def load_frames(
    root: Path, shrink: DownsampleImages, cache: Path, pieces: int = 0, *, skip_idle: bool = True
) -> Frames:
    """Return the frames of the LeRobotDataset at ``root``, decoding it into ``cache`` unless that holds them already.

    Of several processes one decodes, and the others wait for it. What a killed process left half decoded is removed,
    and a damaged cache is decoded again.

    Raises:
        InvalidInputError: the dataset is damaged, or there is something else at ``cache``, which decoding would
            replace.
        NonFiniteError: a number in the dataset is not finite.

    With ``skip_idle``, actions of exactly no motion (whatever the gripper, the last number, does) do not count: they
    are what is commanded while an arm is held, and who learns them freezes in mid-task (as no-ops are filtered by
    OpenVLA, Kim et al. 2024). That all rests after the last motion is learnt.
    """
    cache = cache.resolve()
    with FileLock(f"{cache}.lock"):
        for left in cache.parent.glob("*.partial"):
            if re.fullmatch(rf"{re.escape(cache.name)}\.\d+\.partial", left.name):
                shutil.rmtree(left)
        return _load(root, shrink, cache, pieces, skip_idle)


def _load(root: Path, shrink: DownsampleImages, cache: Path, pieces: int, skip_idle: bool) -> Frames:
    source, found, frames = _source(root, shrink), _decoded_from(cache), None
    said = f"cache {str(cache)!r}: damaged, and decoded again"
    if found == source:
        try:
            frames = _read(cache, shrink, pieces, skip_idle)
        except (*DAMAGED, EOFError) as error:
            if used_up(error):
                raise
            print(f"{said}: {error!r}", file=sys.stderr)
    if frames is None:
        _check_replaceable(cache)
        if not found and any(cache.glob("*.npy")):
            print(f"{said}: its meta.json cannot be read", file=sys.stderr)
        _decode(root, shrink, cache, source)
        frames = _read(cache, shrink, pieces, skip_idle)
    for name, array in (("view", frames.view), (f"embeddings{pieces}", frames.embeddings)):
        if not (cache / f"{name}.npy").exists():
            fresh = cache / "unfinished.npy"  # of a killed process nothing is read
            np.save(fresh, array)
            fresh.rename(cache / f"{name}.npy")
    return frames


def _read(cache: Path, shrink: DownsampleImages, pieces: int, skip_idle: bool) -> Frames:
    """Return the frames in ``cache``; raises one of DAMAGED, or EOFError, where they are damaged."""
    meta = json.loads((cache / "meta.json").read_text())
    arrays = {name: np.array(_array(cache, name)) for name in _ROWS}
    images = {key: _array(cache, key) for key in meta["cameras"]}
    if (cache / f"embeddings{pieces}.npy").exists():
        arrays["embeddings"] = np.array(_array(cache, f"embeddings{pieces}"))
    else:
        arrays["embeddings"] = embed_instructions(meta["instructions"], pieces).numpy()
    views = (cache / "view.npy").exists()
    arrays["view"] = np.array(_array(cache, "view")) if views else same_views([*images.values()], arrays["last"])
    arrays["idle"] = (arrays["action"][:, :-1] == 0).all(1) if skip_idle else np.zeros(len(arrays["action"]), bool)
    context = ContextRows.load(cache) if meta["context"] else None
    instructions, groups = tuple(meta["instructions"]), tuple(meta["groups"])
    frames = Frames(images=images, context=context, instructions=instructions, groups=groups, **arrays)
    if not _belong_together(frames, shrink):
        raise ValueError("its arrays do not belong together")
    return frames


def _belong_together(frames: Frames, shrink: DownsampleImages) -> bool:
    n, rows, context = len(frames), np.arange(len(frames)), frames.context
    columns = {name: getattr(frames, name) for name in _ROWS} | {"view": frames.view}
    bounds = {"last": n, "view": n, "words": len(frames.instructions), "group": len(frames.groups)}
    parts = () if context is None else (context.which, context.age_s, context.place, context.mask)
    return bool(
        all(len(array) == n for array in (*columns.values(), *parts))
        and all((array.ndim, array.dtype) == _ROWS.get(name, _ROWS["last"]) for name, array in columns.items())
        and all(columns[name].min() >= 0 and columns[name].max() < bound for name, bound in bounds.items())
        and ((frames.view <= rows) & (rows <= frames.last)).all()
        and np.isfinite(frames.state).all()
        and np.isfinite(frames.action).all()
        and frames.embeddings.ndim == 2
        and len(frames.embeddings) == len(frames.instructions)
        and np.isfinite(frames.embeddings).all()
        and (context is None or 0 <= context.which.min() <= context.which.max() < len(context.embeddings))
        and all(
            (array.shape, array.dtype) == ((n, 3, *2 * [shrink.size_of(key)]), np.uint8)
            for key, array in frames.images.items()
        )
    )


def _array(cache: Path, name: str) -> np.ndarray:
    """Return an array of a cache, mapped into memory."""
    try:
        return np.lib.format.open_memmap(cache / f"{name}.npy", mode="r")
    except ValueError as error:
        raise ValueError(f"{name}.npy: {error}") from error


def same_views(images: list[np.ndarray], last: np.ndarray, block: int = 1024) -> np.ndarray:
    """Return for each frame the first of the frames before it in its episode (n,) since when nothing has changed.

    While a robot is held still, frame after frame is the same to the bit: it need be understood only once.

    Args:
        images: of each camera (n, 3, S, S).
        last: (n,) last frame of the frame's episode.
        block: frames compared at a time.
    """
    n = len(last)
    same = np.append(False, last[1:] == last[:-1])
    for at in range(1, n, block):
        end = min(n, at + block)
        for camera in images:
            pictures = camera[at - 1 : end]
            same[at:end] &= (pictures[1:] == pictures[:-1]).reshape(end - at, -1).all(1)
    return np.maximum.accumulate(np.where(same, 0, np.arange(n)))


def _decoded_from(cache: Path) -> str:
    """Return what the frames in ``cache`` were decoded from, as :func:`_source` has it; empty: there are none."""
    try:
        return str(json.loads((cache / "meta.json").read_text())["source"])
    except DAMAGED:
        return ""


def _check_replaceable(cache: Path) -> None:
    """Raise InvalidInputError unless there is nothing at ``cache``, an empty folder, or decoded frames alone."""
    if not cache.exists():
        return
    inside = sorted(path.name for path in cache.iterdir()) if cache.is_dir() else []
    others = [name for name in inside if name != "meta.json" and not name.endswith(".npy")]
    ours = _decoded_from(cache) or {f"{name}.npy" for name in _ROWS} <= set(inside)  # meta.json may be damaged
    if not cache.is_dir() or others or (inside and not ours):
        holds = "no folder" if not cache.is_dir() else f"holds {(others or inside)[0]!r}"
        raise InvalidInputError(
            f"cache {str(cache)!r}: {holds}, and decoded frames would replace it; choose an empty folder or a new one"
        )


def _source(root: Path, shrink: DownsampleImages) -> str:
    """Return what tells a cache's dataset, and how its images were cut and shrunk, from others: the dataset's metadata,
    statistics among them, and the names and sizes of its other files."""
    total = hashlib.sha256(json.dumps([LAYOUT, shrink.get_config()], sort_keys=True).encode())
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        content = path.read_bytes() if name.startswith("meta/") else b""
        total.update(f"{name} {path.stat().st_size} {hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def _decode(root: Path, shrink: DownsampleImages, cache: Path, source: str) -> None:
    """Decode every frame; the folder appears under its name only when it is whole."""
    from datasets.exceptions import DatasetsError  # slow to import, and the learner has no dataset
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from pyarrow import ArrowException, parquet

    check_dataset(root)
    try:
        dataset = LeRobotDataset(NO_HUB, root=root)
    except (DatasetsError, ArrowException, OSError, ValueError) as error:
        if full := used_up(error):
            raise full from None
        for file in data_files(root):
            with reading(file, UNREADABLE), parquet.ParquetFile(file) as opened:
                for _ in opened.iter_batches():
                    pass
        raise unreadable(root / "data", error.__cause__ or error) from error
    offered = MEMORY_KEYS if MEMORY_KEYS[0] in dataset.meta.features else ()
    check_finite(dataset, ("observation.state", "action", *offered))
    partial = cache.with_name(f"{cache.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        _decode_into(partial, dataset, shrink, offered, source)
        if cache.exists():
            shutil.rmtree(cache)
        partial.rename(cache)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # of a decoding that failed


def _decode_into(
    partial: Path, dataset: LeRobotDataset, shrink: DownsampleImages, offered: tuple[str, ...], source: str
) -> None:
    cameras = list(dataset.meta.camera_keys)
    n = len(dataset)
    images = {
        key: np.lib.format.open_memmap(partial / f"{key}.npy", "w+", np.uint8, (n, 3, side, side))
        for key, side in ((key, shrink.size_of(key)) for key in cameras)
    }
    context = ContextBuilder()
    columns: dict[str, list[Tensor]] = {key: [] for key in _COLUMNS}
    workers = min(DECODERS, n // FRAMES_PER_DECODER)
    loader = DataLoader(
        _Batches(dataset, cameras, shrink, (*_COLUMNS, *offered)),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    at = 0
    for batch in tqdm(loader, desc="decoding images", unit="batch"):
        if isinstance(batch, Exception):
            raise batch
        b = len(batch["action"])
        for key in cameras:
            images[key][at : at + b] = batch[key].numpy()
        for key, column in columns.items():
            column.append(batch[key])
        if offered:
            context.add(*(batch[key].numpy() for key in offered))
        at += b
    if offered:
        context.built().save(partial)
    joined = {key: torch.cat(column).numpy() for key, column in columns.items()}
    _save_columns(partial, dataset, cameras, bool(offered), joined, source)
    for array in images.values():
        array.flush()


def check_finite(dataset: LeRobotDataset, names: Sequence[str]) -> None:
    """Check the numbers of the features ``names``, before images are decoded, which takes far longer.

    Raises:
        InvalidInputError: they cannot be read.
        NonFiniteError: one is NaN or infinite; names feature, episode and frame. Or only the statistics of a feature
            hold such a number, or a deviation below 0; names the file and the feature.
    """
    columns = dataset.hf_dataset.with_format("numpy", columns=["episode_index", "frame_index", *names])
    for at in range(0, len(columns), 1024):
        with reading(Path(dataset.root) / "data", UNREADABLE):
            block = columns[at : at + 1024]
        for name in names:
            with reading(f"dataset {dataset.root}: {name}"):
                numbers = np.stack(block[name]).astype(np.float64)
            finite = np.isfinite(numbers).reshape(len(numbers), -1).all(1)
            if not finite.all():
                row = int(np.argmin(finite))
                episode, frame = int(block["episode_index"][row]), int(block["frame_index"][row])
                raise NonFiniteError(
                    f"dataset {dataset.root}: {name} is not finite in frame {frame} of episode {episode}; "
                    "leave that episode out"
                )
    for name in ("observation.state", "action", *dataset.meta.camera_keys):
        mean, std = (dataset.meta.stats[name][kind] for kind in ("mean", "std"))
        if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std >= 0).all()):
            raise NonFiniteError(f"{dataset.root}/meta/stats.json: mean or std of {name} is not finite, or std below 0")


class _Batches(Dataset[dict[str, Tensor] | Exception]):
    """Batches of a dataset, images already downsampled: the workers do the arithmetic and send a quarter of the bytes.

    What cannot be read is returned as the error: one raised in a worker would tell its traceback in its text."""

    def __init__(
        self, dataset: LeRobotDataset, cameras: list[str], shrink: DownsampleImages, columns: tuple[str, ...]
    ) -> None:
        self.dataset = dataset
        self.cameras = cameras
        self.shrink = shrink
        self.columns = columns

    def __len__(self) -> int:
        return -(-len(self.dataset) // BATCH)

    def __getitem__(self, at: int) -> dict[str, Tensor] | Exception:
        samples: list[dict[str, Any]] = []
        try:
            for row in range(at * BATCH, min(len(self.dataset), (at + 1) * BATCH)):
                samples.append(self.dataset[row])
        except UNREADABLE as error:
            return used_up(error) or unreadable(self._place(at * BATCH + len(samples)), error)
        batch = {key: torch.stack([torch.as_tensor(s[key]) for s in samples]) for key in self.columns}
        try:
            return batch | {key: self._shrunk(key, [s[key] for s in samples]) for key in self.cameras}
        except InvalidInputError as error:
            return error

    def _shrunk(self, camera: str, pictures: list[Tensor]) -> Tensor:
        shapes = sorted({tuple(picture.shape) for picture in pictures})
        if len(shapes) > 1 or len(shapes[0]) != 3 or shapes[0][0] != 3:
            told = " and ".join(map(str, shapes))
            raise InvalidInputError(
                f"dataset {self.dataset.root}: {camera}: pictures of shape {told}, expected one (3, height, width)"
            )
        try:
            return self.shrink.image(camera, torch.stack(pictures))
        except InvalidInputError as error:
            raise InvalidInputError(f"dataset {self.dataset.root}: {camera}: {error}") from error

    def _place(self, row: int) -> str:
        """Return which frame ``row`` is, and the files that hold it."""
        meta = self.dataset.meta
        next_rows = np.cumsum(meta.episodes["length"])
        episode = int(np.searchsorted(next_rows, row, "right"))
        files = [meta.get_data_file_path(episode), *(meta.get_video_file_path(episode, v) for v in meta.video_keys)]
        frame = row - int(next_rows[episode]) + meta.episodes["length"][episode]
        return f"{self.dataset.root}: frame {frame} of episode {episode}, in {' or '.join(map(str, files))}"


def _save_columns(
    folder: Path,
    dataset: LeRobotDataset,
    cameras: list[str],
    context: bool,
    columns: dict[str, np.ndarray],
    source: str,
) -> None:
    episode = columns["episode_index"].reshape(-1)
    words = columns["task_index"].reshape(-1).astype(np.int64)
    instructions = [str(t) for t in dataset.meta.tasks.sort_values("task_index").index]
    groups, group = _groups(Path(dataset.root), episode, words, instructions)
    np.save(folder / "state.npy", columns["observation.state"].astype(np.float32))
    np.save(folder / "action.npy", columns["action"].astype(np.float32))
    last_rows = np.append(np.flatnonzero(np.diff(episode)), len(episode) - 1)
    np.save(folder / "last.npy", last_rows[np.searchsorted(last_rows, np.arange(len(episode)))])
    np.save(folder / "words.npy", words)
    np.save(folder / "group.npy", group)
    told = {"source": source, "cameras": cameras, "context": context, "instructions": instructions, "groups": groups}
    (folder / "meta.json").write_text(json.dumps(told, indent=1))


def _groups(
    root: Path, episode: np.ndarray, words: np.ndarray, instructions: list[str]
) -> tuple[list[str], np.ndarray]:
    """Return task names and each frame's task: from the recorder's log, else every wording is a task of its own."""
    task_of = logged_tasks(root, int(episode[-1]) + 1)
    if not task_of:
        return instructions, words
    names = sorted(set(task_of))
    return names, np.array([names.index(task) for task in task_of], np.int64)[episode]
