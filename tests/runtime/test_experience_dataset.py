"""Experience becomes a dataset that LeRobot reads, that training takes, and that merges with demonstrations."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engram.core.dataset_check import EPISODE_LOG, check_dataset
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.robot import PANDA_2F85
from engram.core.types import Transition
from engram.learning.experience.store import ExperienceStore
from engram.runtime.datasets import MergeConfig, merge
from engram.runtime.experience_dataset import DatasetConfig, make_dataset
from tests.learning.transitions import episode

ROBOT = replace(PANDA_2F85, cameras=tuple(c for c in PANDA_2F85.cameras if c.name == "front"))
OURS = f"{__name__}:ROBOT"


def stored(folder: Path, *episodes: list[Transition]) -> Path:
    """Return the folder of a learner that has stored ``episodes``."""
    store = ExperienceStore(folder / "experience")
    for steps in episodes:
        store.append(steps)
    store.commit()
    store.close()
    return folder


def taken_over(steps: list[Transition], at: int = 1) -> list[Transition]:
    """Return an episode that a person drove from step ``at`` on."""
    return [replace(step, author="human:ann" if step.step >= at else "base") for step in steps]


def alone(steps: list[Transition]) -> list[Transition]:
    """Return an episode in which nobody helped."""
    return [replace(step, author="base") for step in steps]


@pytest.fixture
def learner(tmp_path: Path) -> Path:
    return stored(
        tmp_path / "learner",
        taken_over(episode(1)),
        episode(2, success=False),
        alone(episode(3, task="stack")),
        episode(4, truncated=True, success=False),
    )


def read(root: Path) -> tuple[list[dict], list[dict]]:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset("any", root=root)
    frames = [dict(dataset[i]) for i in range(len(dataset))]
    return frames, [json.loads(line) for line in (root / EPISODE_LOG).read_text().splitlines()]


def test_successes_become_demonstrations_of_what_was_executed(learner: Path, tmp_path: Path) -> None:
    report = make_dataset(DatasetConfig((str(learner),), str(tmp_path / "data"), robot=OURS))
    assert (report.episodes, report.frames, report.left_out, report.unreadable) == (2, 7, 2, 0)
    check_dataset(tmp_path / "data")
    frames, log = read(tmp_path / "data")
    done = [*taken_over(episode(1))[1:], *alone(episode(3, task="stack"))]
    for frame, step in zip(frames, done, strict=True):
        np.testing.assert_array_equal(frame["action"], step.executed_action)
        np.testing.assert_array_equal(frame["observation.state"], step.state)
        picture = np.asarray(frame["observation.images.front"]).transpose(1, 2, 0) * 255
        np.testing.assert_allclose(picture, step.images["front"], atol=0.5)
        assert frame["task"] == step.instruction and bool(frame["next.success"]) == step.success
    assert [(one["task"], one["helped"], one["success"], one["length"]) for one in log] == [
        ("reach", True, True, 3),
        ("stack", False, True, 4),
    ]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"episodes": "helped"}, ["reach"]),
        ({"episodes": "all"}, ["reach", "reach", "stack", "reach"]),
        ({"instructions": ("stack the red mark",)}, ["stack"]),
    ],
)
def test_what_is_asked_for_is_in_it(learner: Path, tmp_path: Path, options: dict, tasks: list[str]) -> None:
    report = make_dataset(DatasetConfig((str(learner),), str(tmp_path / "data"), robot=OURS, **options))
    _, log = read(tmp_path / "data")
    assert [one["task"] for one in log] == tasks
    assert report.left_out == 4 - len(tasks)
    assert report.frames == {"helped": 3, "all": 16}.get(options.get("episodes", ""), 4)


def test_an_episode_begins_where_a_person_took_over_last(tmp_path: Path) -> None:
    twice = [replace(s, author="human:ann" if s.step in (0, 1, 4, 5) else "base") for s in episode(1, steps=7)]
    learner = stored(tmp_path / "learner", twice, taken_over(episode(2, first=99), at=3))  # the latter: a single step
    report = make_dataset(DatasetConfig((str(learner),), str(tmp_path / "data"), robot=OURS))
    assert (report.episodes, report.frames, report.left_out) == (1, 3, 1)
    frames, _ = read(tmp_path / "data")
    np.testing.assert_array_equal(frames[0]["action"], twice[4].executed_action)


def test_it_merges_with_what_was_made_of_other_experience_and_counts_no_episode_twice(
    learner: Path, tmp_path: Path
) -> None:
    other = stored(tmp_path / "other", alone(episode(1, task="push")))
    for name, folder in (("a", learner), ("b", other), ("again", learner)):
        make_dataset(DatasetConfig((str(folder),), str(tmp_path / name), robot=OURS))
    report = merge(MergeConfig((str(tmp_path / "a"), str(tmp_path / "b")), str(tmp_path / "both")))
    assert report.episodes == 3
    with pytest.raises(InvalidInputError, match=r"both hold reach of the same experience \(episode 1\)"):
        merge(MergeConfig((str(tmp_path / "a"), str(tmp_path / "again")), str(tmp_path / "twice")))
    told = tmp_path / "b" / "meta" / "info.json"
    told.write_text(told.read_text().replace("panda_2f85", "so101"))
    with pytest.raises(InvalidInputError, match=r"b has other robot_type than .*a; record alike"):
        merge(MergeConfig((str(tmp_path / "a"), str(tmp_path / "b")), str(tmp_path / "mixed")))


def test_a_damaged_episode_is_left_out_and_told(
    learner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(learner / "experience" / "experience.sqlite") as database:
        database.execute("UPDATE transitions SET payload = x'00' WHERE step = 2 AND episode = 1")
    report = make_dataset(DatasetConfig((str(learner),), str(tmp_path / "data"), robot=OURS))
    assert (report.episodes, report.left_out, report.unreadable) == (1, 2, 1)
    assert "left out: " in capsys.readouterr().err
    with pytest.raises(InvalidInputError, match=r"none of 4 episodes is asked for .*1 are damaged"):
        words = ("reach the red mark",)
        make_dataset(DatasetConfig((str(learner),), str(tmp_path / "none"), robot=OURS, instructions=words))


def of_another_robot(steps: list[Transition]) -> list[Transition]:
    return [replace(step, state=step.state[:-1]) for step in steps]


def of_a_changed_camera(steps: list[Transition]) -> list[Transition]:
    return [replace(s, images={"front": np.zeros((8 + s.step, 8, 3), np.uint8)}) for s in steps]


def at_another_rate(steps: list[Transition]) -> list[Transition]:
    return [replace(step, stamp_ns=step.stamp_ns // 2) for step in steps]


def of_joint_positions(steps: list[Transition]) -> list[Transition]:
    return [replace(step, executed_action=np.full(7, 1.7, np.float32)) for step in steps]


def test_steps_in_which_the_robot_was_held_are_no_demonstration(tmp_path: Path) -> None:
    held = [replace(s, author="hold:stale" if s.step in (1, 2) else "base") for s in episode(1, steps=6)]
    learner = stored(tmp_path / "learner", held)
    assert make_dataset(DatasetConfig((str(learner),), str(tmp_path / "data"), robot=OURS)).frames == 4
    whole = DatasetConfig((str(learner),), str(tmp_path / "all"), robot=OURS, episodes="all")
    assert make_dataset(whole).frames == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_joint_positions, r"action \[1.7.* in step 0, expected tool motions of 7 numbers"),
        (of_another_robot, "a state of 14 numbers, expected that of robot 'panda_2f85'; name the one .*: 15"),
        (of_a_changed_camera, r"pictures of \{'front': \(9, 8, 3\)\} in step 1, before of"),
        (at_another_rate, "0.050 s from step to step, expected 0.1 s"),
        (lambda steps: alone(episode(9, image_size=16)), r"pictures of \{'front': \(16, 16, 3\)\}, those before have"),
    ],
)
def test_what_does_not_fit_is_named_and_leaves_no_dataset(
    tmp_path: Path, change: Callable[[list[Transition]], list[Transition]], words: str
) -> None:
    learner = stored(tmp_path / "learner", alone(episode(1)), change(alone(episode(9))))
    with pytest.raises(InvalidInputError, match=rf"episode 2 of robot 'panda' \('reach the red mark'\): .*{words}"):
        make_dataset(DatasetConfig((str(learner),), str(tmp_path / "data"), robot=OURS))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"experience": ()}, "DatasetConfig.experience: none"),
        ({"experience": ("nowhere",)}, "nowhere: .*no experience is stored there"),
        ({"robot": "panda_2f85"}, "cameras front, expected that of robot 'panda_2f85'"),
        ({"instructions": ("fly",)}, r"none of 4 episodes .*instructions: \['fly'\].*'reach the red mark', 'stack"),
    ],
)
def test_bad_input_is_named(learner: Path, tmp_path: Path, options: dict, words: str) -> None:
    wanted = {"experience": (str(learner),), "root": str(tmp_path / "data"), "robot": OURS} | options
    with pytest.raises(InvalidInputError, match=words):
        make_dataset(DatasetConfig(**wanted))
    assert not (tmp_path / "data").exists()


def test_a_folder_that_is_there_and_a_word_that_is_none_are_refused(learner: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="exists; choose another folder"):
        make_dataset(DatasetConfig((str(learner),), str(learner), robot=OURS))
    with pytest.raises(UnknownNameError, match="valid: all, helped, succeeded"):
        DatasetConfig((str(learner),), "x", episodes="won")  # type: ignore[arg-type]
