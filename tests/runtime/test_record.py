"""Recording: LeRobot reads it back, labels are clean, runs resume, seeds stay apart."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engram.core.control import proprioception
from engram.core.dataset_check import EPISODE_LOG
from engram.core.errors import InvalidInputError, StoreLockedError, UnknownNameError
from engram.core.provenance import dataset_hash
from engram.runtime.datasets import MergeConfig, joined, merge
from engram.runtime.record import RECORDED_PUSHES, RecordConfig, RecordReport, record, record_episode
from engram.sim.experts import make_expert
from engram.sim.experts.noise import NoiseConfig
from engram.sim.world import MujocoWorld, WorldConfig


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RecordConfig:
    root = tmp_path_factory.mktemp("data") / "small"
    return RecordConfig(
        str(root), tasks=("reach", "press_button"), episodes=2, part_episodes=1, workers=2, image_size=32, noise=0.0
    )


@pytest.fixture(scope="module")
def report(config: RecordConfig) -> RecordReport:
    return record(config)


@pytest.mark.render
def test_lerobot_reads_it_back(config: RecordConfig, report: RecordReport) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset(config.repo_id, root=report.root)
    assert (dataset.num_episodes, len(dataset), dataset.fps) == (4, report.frames, 10)
    assert report.dropped == {"reach": 0, "press_button": 0}
    first = dataset[0]
    world = MujocoWorld(WorldConfig(profile="fast", image_size=32))
    seen = world.reset("reach", config.first_seed)
    np.testing.assert_array_equal(
        first["observation.state"], proprioception(seen.joints, world.kinematics, world.robot)
    )
    np.testing.assert_array_equal(first["action"], make_expert("reach", world).act().astype(np.float32))
    pixels = np.moveaxis(first["observation.images.front"].numpy(), 0, -1) * 255
    np.testing.assert_array_equal(pixels.round(), seen.camera("front").color)
    assert first["task"] == world.oracle_outcome().instruction
    world.close()
    done = np.array(dataset.hf_dataset["next.success"])
    episode = np.array(dataset.hf_dataset["episode_index"])
    for index in range(4):
        assert done[episode == index][-config.tail_steps :].all()
        assert not done[episode == index][: -config.tail_steps].any()


@pytest.mark.render
def test_hash_is_of_the_content(report: RecordReport) -> None:
    assert dataset_hash(report.root) == report.sha256
    log = Path(report.root) / "meta" / "engram_episodes.jsonl"
    text = log.read_text()
    log.write_text(text + "\n")
    assert dataset_hash(report.root) != report.sha256
    log.write_text(text)
    assert dataset_hash(report.root) == report.sha256


@pytest.mark.render
def test_an_existing_dataset_is_not_overwritten(config: RecordConfig, report: RecordReport) -> None:
    with pytest.raises(InvalidInputError, match="exists; choose another folder"):
        record(config)


@pytest.mark.render
def test_a_killed_run_resumes_at_its_last_whole_part(
    config: RecordConfig, report: RecordReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engram.runtime.record as module

    again = replace(config, root=str(tmp_path / "again"), workers=1)
    whole, done = module._record_part, []

    def killed(part: module.Part) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        whole(part)
        done.append(part)

    monkeypatch.setattr(module, "_record_part", killed)
    with pytest.raises(KeyboardInterrupt):
        record(again)
    resumed = []
    monkeypatch.setattr(module, "_record_part", lambda part: resumed.append(part) or whole(part))
    with pytest.raises(InvalidInputError, match="parts of another recording"):
        record(replace(again, noise=1.0))
    with monkeypatch.context() as patched, pytest.raises(InvalidInputError, match="use its config and code"):
        patched.setattr(module, "recorder", lambda _: "other experts")
        record(again)
    assert record(again).sha256 == report.sha256  # which two workers recorded in one go
    assert len(resumed) == 2


@pytest.mark.render
def test_pushed_episodes_show_how_the_expert_follows(tmp_path: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    small = RecordConfig(str(tmp_path / "still"), tasks=("pick_place", "press_button"), episodes=2, workers=1,
                         image_size=32, noise=0.0)  # fmt: skip
    still, pushed = record(small), record(replace(small, root=str(tmp_path / "pushed"), pushed=1.0))
    log = [json.loads(line) for line in (Path(pushed.root) / EPISODE_LOG).read_text().splitlines()]
    assert [(e["task"], e["pushed"]) for e in log] == [("pick_place", True)] * 2 + [("press_button", False)] * 2
    ways = []
    for root in (still.root, pushed.root):
        rows = LeRobotDataset(small.repo_id, root=root).hf_dataset
        episode, action = np.array(rows["episode_index"]), np.array(rows["action"])
        ways.append([action[episode == i] for i in range(4)])
    for before, after in zip(*(way[:2] for way in ways), strict=True):
        same = min(len(before), len(after))
        differs = np.flatnonzero((before[:same] != after[:same]).any(axis=1))
        assert 2 <= differs[0] <= RECORDED_PUSHES.steps[1] + 1  # a push shows one step later
    for before, after in zip(*(way[2:] for way in ways), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.render
def test_looks_are_drawn_for_each_episode_and_the_expert_does_the_same(tmp_path: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    usual = RecordConfig(str(tmp_path / "usual"), tasks=("press_button",), episodes=2, workers=1, image_size=32,
                         noise=0.0)  # fmt: skip
    varied = replace(usual, root=str(tmp_path / "varied"), randomise_looks=True)
    first = []
    for config in (usual, varied):
        dataset = LeRobotDataset(config.repo_id, root=record(config).root)
        begins = np.flatnonzero(np.array(dataset.hf_dataset["frame_index"]) == 0)
        first.append([np.array(dataset[int(i)]["observation.images.front"]) for i in begins])
        first.append(np.array(dataset.hf_dataset["action"]))
    shades, actions, drawn, same = first
    corner = (slice(None), slice(-3, None), slice(0, 3))  # of the table
    assert abs(shades[0][corner].mean() - shades[1][corner].mean()) < 0.01
    assert abs(drawn[0][corner].mean() - drawn[1][corner].mean()) > 0.02
    np.testing.assert_array_equal(actions, same)


@pytest.mark.render
def test_two_recordings_become_one_dataset_whose_tasks_stay_apart(
    config: RecordConfig, report: RecordReport, tmp_path: Path
) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    more = record(
        replace(config, root=str(tmp_path / "more"), tasks=("shell_touch:delay=2",), episodes=1, first_seed=200_000)
    )
    merged = merge(MergeConfig((report.root, more.root), str(tmp_path / "all")))
    assert (merged.episodes, merged.frames) == (5, report.frames + more.frames)
    assert merged.sha256 == dataset_hash(merged.root)
    stats = json.loads((Path(merged.root) / "meta" / "stats.json").read_text())
    assert list(stats) == sorted(stats)  # or the hash would be another in every process
    log = [json.loads(line) for line in (Path(merged.root) / "meta" / "engram_episodes.jsonl").read_text().splitlines()]
    assert [entry["episode_index"] for entry in log] == [0, 1, 2, 3, 4]
    assert log[4]["task"] == "shell_touch:delay=2" and log[4]["seed"] >= 200_000
    whole, old, new = (LeRobotDataset("any", root=root) for root in (merged.root, report.root, more.root))
    for at, (dataset, row) in {0: (old, 0), report.frames: (new, 0), merged.frames - 1: (new, more.frames - 1)}.items():
        for key in ("action", "observation.state", "observation.images.front"):
            np.testing.assert_array_equal(whole[at][key], dataset[row][key])


@pytest.mark.render
def test_what_cannot_be_merged_is_named(config: RecordConfig, report: RecordReport, tmp_path: Path) -> None:
    small = record(replace(config, root=str(tmp_path / "small"), tasks=("reach",), episodes=1, image_size=16))
    root = str(tmp_path / "all")
    (tmp_path / "empty").mkdir()
    for parts, where, message in (
        ((report.root, str(tmp_path / "empty")), root, "empty is no recording"),
        ((report.root, small.root), root, "small has other features than .*; record alike"),
        ((report.root,), small.root, "exists; choose another folder"),
        ((), root, "MergeConfig.parts: none"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            merge(MergeConfig(parts, where))
    assert not Path(root).exists()


@pytest.mark.render
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("meta/info.json", "{", "info.json: cannot be read: JSONDecodeError"),
        ("meta/info.json", "[1]", "info.json: cannot be read: TypeError"),
        ("meta/info.json", '{"fps": 10}', r"info.json: cannot be read: KeyError\('features'\)"),
        (EPISODE_LOG, "{", "engram_episodes.jsonl: cannot be read: JSONDecodeError"),
        (EPISODE_LOG, "7", "engram_episodes.jsonl: cannot be read: TypeError"),
        (EPISODE_LOG, '{"task": "reach"}', r"engram_episodes.jsonl: cannot be read: KeyError\('seed'\)"),
        (EPISODE_LOG, '{"task": [], "seed": 1}', "engram_episodes.jsonl: cannot be read: TypeError"),
        (EPISODE_LOG, "", "engram_episodes.jsonl: cannot be read: .*no episode in it"),
        (EPISODE_LOG, '{"task": "stack", "seed": 1}', "damaged: 1 episodes in .*jsonl, 4 in info.json"),
        ("meta/stats.json", "{", "stats.json: cannot be read: JSONDecodeError"),
        ("meta/tasks.parquet", "x", "tasks.parquet: cannot be read: ArrowInvalid"),
        ("meta/tasks.parquet", None, "tasks.parquet: is missing"),
        ("meta/episodes/chunk-000/file-000.parquet", "x", "episodes/chunk-000/file-000.parquet: cannot be read: Arrow"),
        ("data/chunk-000/file-000.parquet", "x", "data/chunk-000/file-000.parquet: cannot be read: ArrowInvalid"),
        ("data/chunk-000/file-000.parquet", None, "data/chunk-000/file-000.parquet: is missing"),
    ],
)
def test_a_damaged_recording_is_named_and_not_merged(
    file: str, text: str | None, message: str, report: RecordReport, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(report.root, damaged)
    assert (damaged / file).is_file()
    (damaged / file).unlink()
    if text is not None:
        (damaged / file).write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        merge(MergeConfig((str(damaged),), str(tmp_path / "all")))
    assert not (tmp_path / "all").exists()


@pytest.mark.render
def test_a_recording_of_another_version_is_named_and_not_merged(report: RecordReport, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(report.root, old)
    info = json.loads((old / "meta" / "info.json").read_text())
    (old / "meta" / "info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    with pytest.raises(InvalidInputError, match=r"info.json: codebase_version 'v2.1', expected v3"):
        merge(MergeConfig((str(old),), str(tmp_path / "all")))
    assert not (tmp_path / "all").exists()


@pytest.mark.render
def test_a_root_may_end_with_a_slash_or_lie_at_home(
    config: RecordConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    small = replace(config, tasks=("reach",), episodes=1, image_size=16, workers=1)
    first = record(replace(small, root="~/data/first/"))
    second = record(replace(small, root=f"{tmp_path}/data/second/", first_seed=200_000))
    assert first.root == str(tmp_path / "data" / "first")
    assert merge(MergeConfig(("~/data/first", second.root), "~/data/both/")).episodes == 2
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["both", "first", "second"]


def test_two_recordings_do_not_share_a_folder(
    config: RecordConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engram.runtime.record as module

    two = replace(config, root=str(tmp_path / "two"), workers=1)
    unfinished = tmp_path / "two.parts" / "reach-000.unfinished"

    def meanwhile(part: module.Part) -> None:
        unfinished.mkdir()
        with pytest.raises(StoreLockedError, match=f"two.parts: already being written by process {os.getpid()}"):
            record(two)
        assert unfinished.is_dir()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_record_part", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        record(two)


def test_no_episode_is_merged_twice(config: RecordConfig, tmp_path: Path) -> None:
    kind = {"task": "reach", "noise": False, "pushed": False}
    for name, seeds in (("a", (100_000, 100_001)), ("b", (100_001, 100_002))):
        (tmp_path / name / "meta").mkdir(parents=True)
        (tmp_path / name / "meta" / "info.json").write_text(
            json.dumps({"fps": 10, "features": {}, "total_episodes": 2})
        )
        lines = (json.dumps({**kind, "seed": seed}) + "\n" for seed in seeds)
        (tmp_path / name / EPISODE_LOG).write_text("".join(lines))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    for parts, message in (
        ((a, a + "/"), "a named twice, expected each recording once"),
        ((a, b), "a and .*b both hold reach of seed 100001, which would count twice; .* another --first-seed"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            merge(MergeConfig(parts, str(tmp_path / "all")))


@pytest.mark.parametrize("beside", ["own.parts", "own.merging"])
def test_a_folder_beside_the_root_that_is_somebody_elses_is_named_and_left_alone(
    beside: str, config: RecordConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engram.runtime.record as module

    monkeypatch.setattr(module, "_record_part", lambda part: pytest.fail("it was begun"))
    kept = tmp_path / beside / "invoice.txt"
    kept.parent.mkdir()
    for name in ("invoice.txt", "config.json"):  # as a policy's folder has one
        (kept.parent / name).write_text("{}")
    with pytest.raises(InvalidInputError, match=rf"{beside}: lies where parts would be written"):
        record(replace(config, root=str(tmp_path / "own")))
    if beside == "own.merging":
        with pytest.raises(InvalidInputError, match=rf"{beside}: lies where parts would be written"):
            joined([tmp_path / "a"], tmp_path / "own", "any")
    assert sorted(path.name for path in kept.parent.iterdir()) == ["config.json", "invoice.txt"]
    assert [path.name for path in tmp_path.iterdir()] == [beside]


@pytest.mark.render
def test_what_somebody_puts_beside_the_parts_meanwhile_stays(
    config: RecordConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import engram.runtime.record as module

    whole = module._record_part
    one = replace(config, root=str(tmp_path / "one"), tasks=("reach",), episodes=1, image_size=16)

    def meanwhile(part: module.Part) -> None:
        whole(part)
        (one.parts / "notes.txt").write_text("mine")

    monkeypatch.setattr(module, "_record_part", meanwhile)
    record(one)
    assert sorted(path.name for path in one.parts.iterdir()) == ["notes.txt", "writer.lock"]
    shown = capsys.readouterr()
    assert (shown.out, "recording" in shown.err) == ("", True)  # the output is for the report


def test_parts_of_a_task_in_a_package_are_recorded_apart() -> None:
    import engram.runtime.record as module

    task = "examples.my_task:PushBoth"
    config = RecordConfig("unused", episodes=2, part_episodes=1)
    unfinished = [module.Part(config, task, index, 1).unfinished.name for index in range(2)]
    assert unfinished == [f"{task}-000.unfinished", f"{task}-001.unfinished"]


OWN = {
    "world_base.py": "from engram.sim.world import MujocoWorld\n\nclass Base(MujocoWorld):\n    pass\n",
    "world_own.py": "from world_base import Base\n\ndef make(config) -> Base:\n    return Base(config)\n",
    "task_base.py": "from engram.sim.tasks.reach import Reach\n\nclass Base(Reach):\n    pass\n",
    "task_own.py": "from expert_own import Own as Expert\nfrom task_base import Base\n\n"
    "class Own(Base):\n    expert = Expert\n",
    "expert_own.py": "from engram.sim.experts.simple import ReachExpert\n\nclass Own(ReachExpert):\n    pass\n",
    "detector_own.py": "from engram.core.contracts import Detector\n\nclass Own(Detector):\n"
    "    def detect(self, frame, instruction='', held=None):\n        return []\n",
}


@pytest.mark.parametrize("edited", OWN)
def test_parts_that_were_recorded_before_own_code_was_edited_are_not_continued(
    edited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engram.runtime.record as module

    for name, text in OWN.items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = RecordConfig(str(tmp_path / "own"), tasks=("task_own:Own",), episodes=1, workers=1, reconstruction=True,
                       world="world_own:make", detector="detector_own:Own")  # fmt: skip

    def begin(part: module.Part) -> None:
        part.root.mkdir()
        raise ChildProcessError

    monkeypatch.setattr(module, "_record_part", begin)
    for _ in range(2):  # the second time it is the same recording
        with pytest.raises(ChildProcessError):
            record(own)
        (own.parts / "task_own:Own-000").rename(own.parts / "kept")
    (tmp_path / edited).write_text(OWN[edited] + "    # edited\n")
    with pytest.raises(InvalidInputError, match="parts of another recording"):
        record(own)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world": "tabeltop"}, "unknown world 'tabeltop'; did you mean 'tabletop'"),
        ({"detector": "geometrik", "reconstruction": True}, "unknown detector 'geometrik'; did you mean 'geometric'"),
        ({"world": "nowhere:World"}, "no module 'nowhere'"),
    ],
)
def test_a_misspelt_name_leaves_nothing_behind(
    change: dict, message: str, config: RecordConfig, tmp_path: Path
) -> None:
    with pytest.raises((UnknownNameError, InvalidInputError), match=message):
        record(replace(config, root=str(tmp_path / "new"), **change))
    assert not [*tmp_path.iterdir()]


def test_while_no_part_is_finished_other_options_begin_anew(
    config: RecordConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engram.runtime.record as module

    def killed(part: module.Part) -> None:
        part.unfinished.mkdir()
        raise ChildProcessError

    monkeypatch.setattr(module, "_record_part", killed)
    for noise in (0.0, 0.5):
        one = replace(config, root=str(tmp_path / "new"), workers=1, tasks=("reach",), noise=noise)
        with pytest.raises(ChildProcessError):
            record(one)
        assert json.loads((one.parts / "config.json").read_text())["noise"] == noise


def test_a_task_with_several_options_gets_several_tables() -> None:
    import engram.runtime.record as module

    tasks = ("shell_touch", "reach", "shell_touch:delay=5", "shell_touch:delay=20")
    parts = module._parts(RecordConfig("unused", tasks=tasks, episodes=4, part_episodes=2))
    seeds = {task: [part.seed for part in parts if part.task == task] for task in tasks}
    assert seeds == {
        "shell_touch": [100_000, 101_000],
        "reach": [100_000, 101_000],
        "shell_touch:delay=5": [102_000, 103_000],
        "shell_touch:delay=20": [104_000, 105_000],
    }


@pytest.mark.render
def test_labels_stay_clean_under_noise() -> None:
    world = MujocoWorld(WorldConfig(profile="fast", image_size=16))
    loud = NoiseConfig(burst_probability=1.0, offset_m=(0.02, 0.02))
    clean, noisy = (record_episode(world, "reach", 100_001, n, tail_steps=1) for n in (None, loud))
    world.close()
    assert clean is not None and noisy is not None
    np.testing.assert_array_equal(clean[0]["action"], noisy[0]["action"])  # the same state, the same label
    assert np.abs(clean[1]["observation.state"][:3] - noisy[1]["observation.state"][:3]).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tasks": ("juggle",)}, UnknownNameError, "unknown task 'juggle'"),
        ({"first_seed": 99_999}, InvalidInputError, "lower seeds are for evaluation"),
        ({"noise": 1.5}, InvalidInputError, "expected 0..1"),
        ({"pushed": -0.1}, InvalidInputError, "RecordConfig.pushed: -0.1, expected 0..1"),
        ({"tasks": ("press_button",), "pushed": 0.5}, InvalidInputError, "cube that lies free: press_button"),
        ({"episodes": 0}, InvalidInputError, "RecordConfig.episodes"),
        ({"tail_steps": 0}, InvalidInputError, "RecordConfig.tail_steps"),
        ({"part_episodes": 1001}, InvalidInputError, r"part_episodes: 1001, expected 1\.\.1000"),
        ({"profile": "none"}, UnknownNameError, "unknown profile to record with 'none'; valid: fast, photo"),
        ({"tasks": ("memory", "shell_touch")}, InvalidInputError, "shell_touch named more than once"),
        ({"detector": "zero_shot"}, InvalidInputError, "detector: zero_shot: would change nothing without reconstruc"),
    ],
)
def test_bad_configs_are_refused(change: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RecordConfig("nowhere", **change)
