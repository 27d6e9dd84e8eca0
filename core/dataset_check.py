"""Whether a folder holds a whole LeRobotDataset v3: to be asked before LeRobot opens it.

LeRobot asks a hub for what it misses in a folder, and what is damaged there ends in errors that name no file.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from engram.core.errors import DAMAGED, EngramError, InvalidInputError

EPISODE_LOG = "meta/engram_episodes.jsonl"
"""Task, seed, noise, push and length of each episode that our recorder wrote, beside LeRobot's own metadata."""
NO_HUB = "a folder, of no hub"
"""LeRobot's name of a dataset that is read from its folder. No hub has such a name: LeRobot refuses to ask for it."""
UNREADABLE = (*DAMAGED, RuntimeError, EOFError, SyntaxError, AssertionError)
"""What decoding one damaged frame or parquet file may raise. Our own code may, too: for single calls of a decoder."""
_USED_UP = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_INFO, _STATS, _TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
_LEARNT = ("observation.state", "action")
_ROWS = ("episode_index", "frame_index", "task_index")


def unreadable(what: object, error: BaseException) -> InvalidInputError:
    """Return the error that says in one line why ``what`` cannot be read."""
    return InvalidInputError(f"{what}: cannot be read: {error!r}")


def used_up(error: BaseException) -> OSError | MemoryError | None:
    """Return what says that the machine, not the data, is why ``error`` came: a full disk, no memory, no open files."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _USED_UP):
            return cause
        cause = cause.__cause__
    return None


@contextmanager
def reading(what: object, damaged: tuple[type[Exception], ...] = DAMAGED) -> Iterator[None]:
    """Raise InvalidInputError, which names ``what``, for all that reading something ``damaged`` raises."""
    try:
        yield
    except EngramError:
        raise
    except damaged as error:
        if used_up(error):
            raise
        raise unreadable(what, error) from error


def check_dataset(root: Path) -> None:
    """Check that LeRobot can open the dataset ``root`` without a hub, and that its files tell of the same frames.

    What the frames themselves hold is not read, nor whether their statistics are finite.

    Raises:
        InvalidInputError: there is no dataset, it has another version, or a file is missing, damaged or at odds with
            the others; names the file.
    """
    from lerobot.datasets.io_utils import load_info, load_stats, load_tasks  # slow to import

    _expect((root / _INFO).is_file(), f"dataset {str(root)!r}", f"no LeRobotDataset (it has no {_INFO})")
    with reading(root / _INFO):
        version = json.loads((root / _INFO).read_text())["codebase_version"]
        said = f"codebase_version {version!r}, expected v3; LeRobot's convert_dataset_v21_to_v30 makes it of v2.1"
        _expect(isinstance(version, str) and re.match(r"v?3(\.|$)", version) is not None, root / _INFO, said)
        info = load_info(root)
        shapes = _learnt_shapes(info.features)
        videos = [name for name, feature in info.features.items() if feature["dtype"] == "video"]
    for name in _LEARNT:
        shape = shapes.get(name, ())
        said = f"{name} has shape {shape}, expected one axis of 2 numbers or more"
        _expect(len(shape) == 1 and shape[0] > 1, root / _INFO, said)
    for file in (root / _STATS, root / _TASKS):
        _expect(file.is_file(), file, "is missing, and every LeRobotDataset v3 has it")
    with reading(root / _STATS):
        stats: Any = load_stats(root)
        for name, shape in shapes.items():
            for kind in ("mean", "std"):
                numbers = np.asarray(stats[name][kind], np.float64).size
                _expect(numbers == shape[0], root / _STATS, f"{kind} of {name}: {numbers} numbers, expected {shape[0]}")
    with reading(root / _TASKS):
        tasks = load_tasks(root)
        fine = sorted(tasks["task_index"]) == list(range(len(tasks))) and all(isinstance(t, str) for t in tasks.index)
        _expect(fine and min(len(tasks), info.total_tasks) > 0, root / _TASKS, "expected tasks, numbered from 0")
    lengths = _episodes(root, info, videos)
    _frames(root, info.features.keys() - set(videos), lengths, len(tasks))
    logged_tasks(root, len(lengths))


def logged_tasks(root: Path, episodes: int) -> list[str]:
    """Return the task of each episode of the dataset ``root`` by the recorder's log; nothing where there is none.

    Raises:
        InvalidInputError: the log is damaged, or is of other ``episodes``.
    """
    log = root / EPISODE_LOG
    if not log.exists():
        return []
    with reading(log):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        tasks = {entry.get("episode_index", i): entry["task"] for i, entry in enumerate(entries)}
        _expect(all(isinstance(task, str) for task in tasks.values()), log, "a task is no text")
        fine = len(entries) == len(tasks) == episodes and set(tasks) == set(range(episodes))
        _expect(fine, log, f"{len(entries)} lines, expected one for each of the {episodes} episodes in {_INFO}")
    return [tasks[i] for i in range(episodes)]


def data_files(root: Path) -> list[Path]:
    """Return the files of frames of the dataset ``root``, in order."""
    return sorted(root.glob("data/*/*.parquet"))


def _expect(holds: bool | np.bool_, what: object, said: str) -> None:
    if not holds:
        raise InvalidInputError(f"{what}: {said}")


def _learnt_shapes(features: dict[str, dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of pictures (c, h, w), state and action, once LeRobot has understood all ``features``."""
    from lerobot.configs import FeatureType
    from lerobot.datasets.feature_utils import get_hf_features_from_features
    from lerobot.utils.feature_utils import dataset_to_policy_features

    get_hf_features_from_features(features)
    for name, feature in features.items():
        if not all(isinstance(side, int) and side > 0 for side in feature["shape"]):
            raise ValueError(f"{name}: shape {feature['shape']}")
    told = dataset_to_policy_features(features)
    return {name: f.shape for name, f in told.items() if f.type is FeatureType.VISUAL or name in _LEARNT}


def _episodes(root: Path, info: Any, videos: list[str]) -> np.ndarray:
    """Return the number of frames of each episode (n,), once all files are there that hold them."""
    from pyarrow import parquet

    places = [("data", info.data_path, "")] + [(f"videos/{name}", info.video_path, name) for name in videos]
    wanted = [f"{place}/{kind}_index" for place, _, _ in places for kind in ("chunk", "file")]
    columns: dict[str, list[int]] = {name: [] for name in ("episode_index", "length", *wanted)}
    for file in sorted(root.glob("meta/episodes/*/*.parquet")):
        with reading(file, UNREADABLE), parquet.ParquetFile(file) as opened:
            for name, column in opened.read().select(list(columns)).to_pydict().items():
                columns[name] += column
    lengths, episodes = columns["length"], root / "meta" / "episodes"
    with reading(episodes):
        fine = 0 < len(lengths) == info.total_episodes and sum(lengths) == info.total_frames and min(lengths) > 0
        said = f"{len(lengths)} episodes of {sum(lengths)} frames; {_INFO} tells of {info.total_episodes} of "
        _expect(fine, episodes, f"{said}{info.total_frames}")
        _expect(columns["episode_index"] == list(range(len(lengths))), episodes, "episode_index does not count from 0")
        for place, path, name in places:
            for chunk, index in {*zip(columns[f"{place}/chunk_index"], columns[f"{place}/file_index"], strict=True)}:
                file = root / path.format(video_key=name, chunk_index=chunk, file_index=index)
                _expect(file.is_file(), file, "is missing; meta/episodes names it")
    return np.array(lengths, np.int64)


def _frames(root: Path, features: set[str], lengths: np.ndarray, tasks: int) -> None:
    """Check which frames there are in the files under ``data``, by their numbers."""
    from pyarrow import parquet

    parts: list[np.ndarray] = []
    for file in data_files(root):
        with reading(file, UNREADABLE), parquet.ParquetFile(file) as opened:
            if unlike := sorted(features ^ set(opened.schema_arrow.names)):
                _expect(False, file, f"{unlike[0]!r} is a column here or a feature in {_INFO}, but not both")
            parts.append(np.stack([column.to_numpy() for column in opened.read(list(_ROWS)).select(_ROWS).columns]))
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    wanted = np.stack([np.repeat(np.arange(len(lengths)), lengths), np.arange(len(begins)) - begins])
    data = root / "data"
    with reading(data):
        there = np.concatenate(parts, axis=1)
        _expect(np.array_equal(there[:2], wanted), data, "its frames are not those that meta/episodes tells of")
        _expect(((there[2] >= 0) & (there[2] < tasks)).all(), data, f"a task_index is none in {_TASKS}")
