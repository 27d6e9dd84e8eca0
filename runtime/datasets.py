"""Datasets in folders: put together beside where they will lie, so that they are whole or not there, and merged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from engram.core.dataset_check import EPISODE_LOG, check_dataset, used_up
from engram.core.errors import DAMAGED, InvalidInputError
from engram.core.lock import WriterLock
from engram.core.paths import at_home
from engram.core.provenance import dataset_hash

LOCK = "writer.lock"
"""What lies beside the parts of a dataset, and says who writes there."""


@dataclass(frozen=True)
class MergeConfig:
    """Merge several recordings into one dataset."""

    parts: tyro.conf.Positional[tuple[str, ...]]
    """Folders of the recordings, in the order of their episodes in the result."""
    root: str
    """Folder of the new dataset; the recordings stay as they are."""
    repo_id: str = "engram/merged"
    """LeRobot's name of the dataset; nothing is uploaded."""


@dataclass(frozen=True)
class MergeReport:
    """What there is in ``root``."""

    root: str
    episodes: int
    frames: int
    sha256: str


def check_absent(option: str, root: Path) -> None:
    if not root.name:  # / and . cannot be made anew, and nothing lies beside them
        raise InvalidInputError(f"{option}: {root}, expected a folder with a name of its own")
    if root.exists():
        raise InvalidInputError(f"{option}: {root} exists; choose another folder or remove it")


def merging_folder(root: Path) -> Path:
    """Return the folder in which the dataset ``root`` is put together."""
    return root.with_name(f"{root.name}.merging")


@contextmanager
def put_together(root: Path) -> Iterator[Path]:
    """Yield the folder, not there yet, that a dataset is written to; when that is done, it becomes ``root``.

    Raises:
        InvalidInputError: the folder beside ``root`` in which it is put together is somebody else's.
        StoreLockedError: another process puts ``root`` together.
    """
    beside = merging_folder(root)
    check_ours(beside)
    lock, merging = WriterLock(beside), beside / root.name
    try:
        shutil.rmtree(merging, ignore_errors=True)
        yield merging
        merging.rename(root)
        remove(beside)
    finally:
        lock.release()


def write_log(root: Path, log: Sequence[Mapping[str, Any]]) -> None:
    """Write what is known of each episode of the dataset ``root``, beside what LeRobot says of it."""
    (root / EPISODE_LOG).write_text("".join(json.dumps(entry) + "\n" for entry in log))


def check_ours(folder: Path) -> None:
    """Raise InvalidInputError where ``folder`` holds something that no recording or merge left there."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).is_file():
        raise InvalidInputError(
            f"{folder}: lies where parts would be written, and holds something else; choose another root or move it"
        )


def remove(folder: Path, *names: str) -> None:
    """Delete ``names`` from ``folder``; the folder too, unless somebody has put something else there."""
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    if [path.name for path in folder.iterdir()] == [LOCK]:
        shutil.rmtree(folder)


def merge(config: MergeConfig) -> MergeReport:
    """Make one dataset of several recordings, whose tasks and options stay told apart.

    LeRobot's ``aggregate_datasets`` alone would lose the recorder's metadata of each episode.

    Raises:
        InvalidInputError: ``config.root`` exists already, a part is no recording of ours, is damaged, was recorded
            otherwise, or holds an episode of another part; or the folder beside ``config.root`` in which the result
            is put together is somebody else's.
        StoreLockedError: another process merges into ``config.root``.
    """
    root, parts = at_home(config.root), [at_home(part) for part in config.parts]
    check_absent("MergeConfig.root", root)
    if not parts:
        raise InvalidInputError("MergeConfig.parts: none, expected folders of recordings")
    for part in parts:
        if not (part / EPISODE_LOG).is_file():
            raise InvalidInputError(f"MergeConfig.parts: {part} is no recording (it has no {EPISODE_LOG})")
    first, *others = map(_info, parts)
    for part, other in zip(parts[1:], others, strict=True):
        for name in ("fps", "features", "robot_type"):
            if other[name] != first[name]:
                raise InvalidInputError(f"MergeConfig.parts: {part} has other {name} than {parts[0]}; record alike")
    _check_distinct(parts)
    return joined(parts, root, config.repo_id)


def _check_distinct(parts: list[Path]) -> None:
    """Raise InvalidInputError where an episode would count twice."""
    for i, part in enumerate(parts):
        if part.resolve() in [before.resolve() for before in parts[:i]]:
            raise InvalidInputError(f"MergeConfig.parts: {part} named twice, expected each recording once")
    of: dict[tuple[Any, ...], Path] = {}
    for part in parts:
        for entry in episode_log(part):
            if (first := of.setdefault(_episode(entry), part)) is not part:
                where, instead = f"seed {entry.get('seed')}", "record one of them anew with another --first-seed"
                if "experience" in entry:
                    where, instead = f"the same experience (episode {entry['episode']})", "leave one of them out"
                raise InvalidInputError(
                    f"MergeConfig.parts: {first} and {part} both hold {entry['task']} of {where}, which "
                    f"would count twice; {instead}"
                )


def joined(parts: list[Path], root: Path, repo_id: str) -> MergeReport:
    """Merge ``parts`` into one dataset. It appears in ``root`` only when it is complete."""
    from lerobot.datasets.aggregate import aggregate_datasets
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

    check_ours(merging_folder(root))
    for part in parts:
        check_dataset(part)
    with put_together(root) as merging:
        try:
            aggregate_datasets(
                [repo_id] * len(parts),
                repo_id,
                roots=parts,
                aggr_root=merging,
                concatenate_data=False,  # one file per part: appending encodes all images again for every part
            )
        except DAMAGED as error:
            if used_up(error):  # the disk, not the parts
                raise
            told = ", ".join(map(str, parts))
            raise InvalidInputError(f"{told}: cannot be merged into {root}: {error!r}") from error
        stats = merging / "meta" / "stats.json"  # LeRobot writes it in the order of a set: differs between processes
        stats.write_text(json.dumps(json.loads(stats.read_text()), indent=4, sort_keys=True))
        log = [entry for part in parts for entry in episode_log(part)]
        for i, entry in enumerate(log):
            entry.pop("episode_index", None)  # that of the recording it comes from
            log[i] = {"episode_index": i, **entry}
        write_log(merging, log)
    meta = LeRobotDatasetMetadata(repo_id, root=root)
    return MergeReport(str(root), meta.total_episodes, meta.total_frames, dataset_hash(root))


def episode_log(root: Path) -> list[dict[str, Any]]:
    """Return what the recorder knows of each episode; raises InvalidInputError where that cannot be read."""
    file = root / EPISODE_LOG
    try:
        log = [dict(json.loads(line)) for line in file.read_text().splitlines()]
        if not {_episode(entry) for entry in log}:
            raise ValueError("no episode in it")
    except DAMAGED as error:
        raise InvalidInputError(f"{file}: cannot be read: {error!r}") from error
    return log


def _episode(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells an episode of the log from every other."""
    if "experience" in entry:
        return entry["task"], entry["experience"], entry["episode"]
    return entry["task"], entry["seed"], entry.get("noise"), entry.get("pushed")


def _info(part: Path) -> dict[str, Any]:
    """Return what LeRobot says of a recording; raises InvalidInputError where that, or the recording, is damaged."""
    file = part / "meta" / "info.json"
    try:
        info = dict(json.loads(file.read_text()))
        alike = {"fps": info["fps"], "features": info["features"], "robot_type": info.get("robot_type")}
        episodes = info["total_episodes"]
    except DAMAGED as error:
        raise InvalidInputError(f"{file}: cannot be read: {error!r}") from error
    if episodes != (logged := len(episode_log(part))):
        raise InvalidInputError(f"{part}: damaged: {logged} episodes in {EPISODE_LOG}, {episodes} in {file.name}")
    return alike
