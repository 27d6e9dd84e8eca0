"""A damaged or foreign dataset, or a damaged cache of its frames: one line that names the file, and no hub is asked."""

import errno
import io
import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.exceptions import DatasetGenerationError
from lerobot.datasets import dataset_metadata, lerobot_dataset
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from PIL import Image

import engram.policies.training.frames as module
from engram.app import cli
from engram.core import dataset_check
from engram.core.dataset_check import EPISODE_LOG, NO_HUB, check_dataset
from engram.core.errors import InvalidInputError
from engram.policies.lerobot.processor_engram_vla import DownsampleImages
from engram.policies.training import relight
from engram.policies.training.frames import load_frames
from engram.policies.training.relight_config import RelightConfig
from engram.policies.training.train import main

from .synthetic import make_dataset
from .test_train import config

INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES, DATA = "meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-000.parquet"
FRONT, EXTRA = "observation.images.front", "observation.images.extra"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("data") / "synthetic")


@pytest.fixture(autouse=True)
def hub(monkeypatch):
    """Whoever asks a hub fails the test."""
    for place in (dataset_metadata, lerobot_dataset):
        for name in ("get_safe_version", "snapshot_download"):
            monkeypatch.setattr(place, name, lambda *_, **__: pytest.fail("a hub was asked"))


@pytest.fixture
def damaged(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "damaged")


def said(error):
    text = str(error.value)
    assert "\n" not in text
    return text


def cut(root, file):
    content = (root / file).read_bytes()
    (root / file).write_bytes(content[: len(content) // 2])


def told(root, file, change):
    """Change what a JSON file says."""
    content = json.loads((root / file).read_text())
    change(content)
    (root / file).write_text(json.dumps(content))


def rows(root, file, change):
    """Change the table of a parquet file."""
    pq.write_table(change(pq.read_table(root / file)), root / file)


def column(table, name, values):
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, type=table.schema.field(at).type))


def log(root, *entries):
    (root / EPISODE_LOG).write_text("".join(json.dumps(entry) + "\n" for entry in entries))


DAMAGE = {
    "frames cut": (lambda root: cut(root, DATA), rf"{DATA}: cannot be read: ArrowInvalid"),
    "episodes cut": (lambda root: cut(root, EPISODES), rf"{EPISODES}: cannot be read: ArrowInvalid"),
    "tasks cut": (lambda root: cut(root, TASKS), rf"{TASKS}: cannot be read: ArrowInvalid"),
    "statistics cut": (lambda root: cut(root, STATS), rf"{STATS}: cannot be read: JSONDecodeError"),
    "info cut": (lambda root: cut(root, INFO), rf"{INFO}: cannot be read: JSONDecodeError"),
    "info a list": (lambda root: (root / INFO).write_text("[1]"), rf"{INFO}: cannot be read: TypeError"),
    "no fps": (lambda root: told(root, INFO, lambda i: i.pop("fps")), rf"{INFO}: cannot be read: .*'fps'"),
    "no shape": (lambda root: told(root, INFO, lambda i: i["features"][FRONT].pop("shape")), rf"{INFO}: .*shape"),
    "no number of frames": (lambda root: told(root, INFO, lambda i: i.pop("total_frames")), "48 frames; .* 4 of 0"),
    "fewer episodes": (lambda root: told(root, INFO, lambda i: i.update(total_episodes=2)), "4 episodes .* 2 of 48"),
    "old": (lambda root: told(root, INFO, lambda i: i.update(codebase_version="v2.1")), "'v2.1', expected v3; LeRobot"),
    "new": (lambda root: told(root, INFO, lambda i: i.update(codebase_version="v4.0")), "'v4.0', expected v3"),
    "version a number": (lambda root: told(root, INFO, lambda i: i.update(codebase_version=3)), "version 3, expected"),
    "no action": (lambda root: told(root, INFO, lambda i: i["features"].pop("action")), r"action has shape \(\)"),
    "a short action": (
        lambda root: told(root, INFO, lambda i: i["features"]["action"].update(shape=[1])),
        r"info.json: action has shape \(1,\), expected one axis of 2 numbers or more",
    ),
    "another action": (
        lambda root: told(root, INFO, lambda i: i["features"]["action"].update(shape=[6])),
        f"{STATS}: mean of action: 7 numbers, expected 6",
    ),
    "no statistics of a camera": (lambda root: told(root, STATS, lambda s: s.pop(FRONT)), rf"{STATS}: .*{FRONT}"),
    "no frames": (lambda root: shutil.rmtree(root / "data"), rf"{DATA}: is missing; meta/episodes names it"),
    "no episodes": (lambda root: shutil.rmtree(root / "meta/episodes"), "meta/episodes: 0 episodes of 0 frames"),
    "no tasks": (lambda root: (root / TASKS).unlink(), rf"{TASKS}: is missing"),
    "no statistics": (lambda root: (root / STATS).unlink(), rf"{STATS}: is missing"),
    "no column": (lambda root: rows(root, DATA, lambda t: t.drop_columns(["action"])), rf"{DATA}: 'action' is "),
    "fewer frames": (lambda root: rows(root, DATA, lambda t: t.slice(0, 40)), "data: its frames are not those"),
    "frames in disorder": (
        lambda root: rows(root, DATA, lambda t: t.take(list(range(47, -1, -1)))),
        "data: its frames are not those that meta/episodes tells of",
    ),
    "other episodes": (
        lambda root: rows(root, DATA, lambda t: column(t, "episode_index", np.arange(48) // 12 + 1)),
        "data: its frames are not those",
    ),
    "an unknown task": (
        lambda root: rows(root, DATA, lambda t: column(t, "task_index", [-1] * 48)),
        f"data: a task_index is none in {TASKS}",
    ),
    "tasks without a number": (
        lambda root: pd.read_parquet(root / TASKS).assign(task_index=[0, 5]).to_parquet(root / TASKS),
        f"{TASKS}: expected tasks, numbered from 0",
    ),
    "tasks without words": (
        lambda root: pd.read_parquet(root / TASKS).reset_index().to_parquet(root / TASKS, index=False),
        f"{TASKS}: expected tasks, numbered from 0",
    ),
    "log cut": (lambda root: (root / EPISODE_LOG).write_text('{"task": "re'), f"{EPISODE_LOG}: cannot be read: JSON"),
    "log of no task": (lambda root: log(root, *4 * [{}]), rf"{EPISODE_LOG}: cannot be read: KeyError\('task'\)"),
    "log of numbers": (lambda root: log(root, *4 * [7]), f"{EPISODE_LOG}: cannot be read: AttributeError"),
    "log of fewer": (lambda root: log(root, *3 * [{"task": "reach"}]), "jsonl: 3 lines, expected .* 4 episodes"),
    "log of more": (lambda root: log(root, *5 * [{"task": "reach"}]), "jsonl: 5 lines, expected .* 4 episodes"),
    "log of one": (lambda root: log(root, *4 * [{"task": "reach", "episode_index": 0}]), "jsonl: 4 lines, expected"),
    "log without words": (lambda root: log(root, *4 * [{"task": 3}]), "jsonl: a task is no text"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_dataset_is_named_before_it_is_opened(damaged, tmp_path, kind):
    damage, message = DAMAGE[kind]
    check_dataset(damaged)
    damage(damaged)
    with pytest.raises(InvalidInputError, match=message) as error:
        main(config(damaged, tmp_path / "out", steps=1))
    assert str(damaged) in said(error)
    with pytest.raises(InvalidInputError, match=message):
        load_frames(damaged, DownsampleImages(32), tmp_path / "frames")
    assert not (tmp_path / "out").exists()


def test_relight_names_a_damaged_dataset_too(damaged, tmp_path):
    cut(damaged, DATA)
    with pytest.raises(InvalidInputError, match=rf"{DATA}: cannot be read"):
        relight.main(RelightConfig(str(damaged), str(tmp_path / "out")))


def test_the_command_says_so_in_one_line(damaged, tmp_path, capsys):
    cut(damaged, DATA)
    assert cli.main(["train", "--dataset", str(damaged), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert told[-1].startswith(f"engram train: {damaged / DATA}: cannot be read: ")
    assert not any("Traceback" in line for line in told)


def test_lerobot_refuses_to_ask_a_hub_for_what_is_read_from_a_folder(damaged, monkeypatch):
    monkeypatch.undo()
    shutil.rmtree(damaged / "data")
    with pytest.raises(ValueError, match="Repo id must"):
        LeRobotDataset(NO_HUB, root=damaged)


def test_frames_are_counted_over_all_files_wherever_the_dataset_lies(whole, tmp_path):
    """A name with = in it is no column, and a file may hold some of the episodes."""
    root = shutil.copytree(whole, tmp_path / "part=1")
    frames = pq.read_table(root / DATA)
    pq.write_table(frames.slice(0, 24), root / DATA)
    pq.write_table(frames.slice(24), root / "data/chunk-000/file-001.parquet")
    episodes = pd.read_parquet(root / EPISODES)
    episodes.assign(**{"data/file_index": [0, 0, 1, 1]}).to_parquet(root / EPISODES)
    assert len(load_frames(root, DownsampleImages(32), tmp_path / "frames")) == 48
    (root / "data/chunk-000/file-001.parquet").unlink()
    with pytest.raises(InvalidInputError, match=r"file-001.parquet: is missing"):
        check_dataset(root)


def picture(height, width, mode="RGB"):
    content = io.BytesIO()
    Image.new(mode, (width, height)).save(content, "PNG")
    return content.getvalue()


def shown(table, content, row=7):
    pictures = table.column(FRONT).to_pylist()
    pictures[row]["bytes"] = content
    return column(table, FRONT, pictures)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (picture(48, 48)[:60], rf"frame 7 of episode 0, in {DATA}: cannot be read: "),
        (b"", rf"frame 7 of episode 0, in {DATA}: cannot be read: UnidentifiedImageError"),
        (picture(40, 56), rf"{FRONT}: pictures of shape \(3, 40, 56\) and \(3, 48, 48\), expected one"),
        (picture(48, 48, "L"), rf"{FRONT}: pictures of shape \(1, 48, 48\) and \(3, 48, 48\), expected one"),
    ],
    ids=["cut", "empty", "of another size", "grey"],
)
def test_a_damaged_picture_is_named_with_its_frame_or_camera(damaged, tmp_path, content, message):
    rows(damaged, DATA, lambda table: shown(table, content))
    with pytest.raises(InvalidInputError, match=message) as error:
        load_frames(damaged, DownsampleImages(32), tmp_path / "frames")
    assert str(damaged) in said(error)
    assert not (tmp_path / "frames").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_decoding_process_tells_the_frame_alone(damaged, tmp_path, monkeypatch):
    rows(damaged, DATA, lambda table: shown(table, b"", 29))
    monkeypatch.setattr(module, "FRAMES_PER_DECODER", 20)
    with pytest.raises(InvalidInputError, match="frame 5 of episode 2, in") as error:
        load_frames(damaged, DownsampleImages(32), tmp_path / "frames")
    assert "Traceback" not in said(error)


def test_frames_damaged_between_whole_ends_of_a_file_are_named_with_the_file(damaged, tmp_path):
    file = damaged / DATA
    group, content = pq.read_metadata(file).row_group(0), bytearray(file.read_bytes())
    columns = [group.column(i) for i in range(group.num_columns)]
    at = next(each.dictionary_page_offset for each in columns if each.path_in_schema.startswith("action"))
    content[at : at + 60] = bytes(60)
    file.write_bytes(content)
    check_dataset(damaged)  # what the frames hold is not read
    with pytest.raises(InvalidInputError, match=rf"{DATA}: cannot be read: ") as error:
        load_frames(damaged, DownsampleImages(32), tmp_path / "frames")
    assert str(damaged) in said(error)


@pytest.mark.parametrize(("kind", "number"), [("mean", float("nan")), ("std", float("inf")), ("std", -1.0)])
def test_statistics_that_frames_of_finite_numbers_cannot_have_are_named(damaged, tmp_path, kind, number):
    told(damaged, STATS, lambda stats: stats["action"].update({kind: [number] * 7}))
    with pytest.raises(InvalidInputError, match=f"damaged/{STATS}: mean or std of action is not finite, or std below"):
        load_frames(damaged, DownsampleImages(32), tmp_path / "frames")


def test_an_action_that_is_missing_is_named(damaged, tmp_path):
    rows(damaged, DATA, lambda t: column(t, "action", [None, *t.column("action").to_pylist()[1:]]))
    with pytest.raises(InvalidInputError, match="damaged/data: cannot be read: "):
        load_frames(damaged, DownsampleImages(32), tmp_path / "frames")


def with_another_camera(root, side, mode="RGB", channels=3):
    camera = {"dtype": "image", "shape": [side, side, channels], "names": ["height", "width", "channels"]}
    told(root, INFO, lambda info: info["features"].update({EXTRA: camera}))
    statistics = {"mean": [[[0.5]]] * channels, "std": [[[0.1]]] * channels}
    told(root, STATS, lambda stats: stats.update({EXTRA: statistics}))

    def added(table):
        pictures = pa.array(
            [{"bytes": picture(side, side, mode), "path": None}] * len(table), table.schema.field(FRONT).type
        )
        table = table.append_column(table.schema.field(FRONT).with_name(EXTRA), pictures)
        kept = json.loads(table.schema.metadata[b"huggingface"])
        kept["info"]["features"][EXTRA] = {"_type": "Image"}
        return table.replace_schema_metadata({b"huggingface": json.dumps(kept)})

    rows(root, DATA, added)


def test_cameras_may_differ_in_size_and_one_that_cannot_be_shrunk_is_named(whole, tmp_path):
    for name, camera, message in (
        ("small", (8,), rf"{EXTRA}: image \(48, 3, 8, 8\): smaller than the policy's 32 px"),
        ("grey", (64, "L", 1), rf"{EXTRA}: pictures of shape \(1, 64, 64\), expected one \(3, height, width\)"),
        ("depth", (64, "I;16", 1), rf"{EXTRA}: pictures of shape \(1, 64, 64\), expected one"),
    ):
        root = shutil.copytree(whole, tmp_path / name)
        with_another_camera(root, *camera)
        with pytest.raises(InvalidInputError, match=message):
            load_frames(root, DownsampleImages(32), tmp_path / "frames")
    root = shutil.copytree(whole, tmp_path / "large")
    with_another_camera(root, 64)
    frames = load_frames(root, DownsampleImages(32), tmp_path / "frames")
    assert {array.shape for array in frames.images.values()} == {(48, 3, 32, 32)}


@pytest.fixture
def recorded_as_video(tmp_path):
    video = {"dtype": "video", "shape": (64, 64, 3), "names": ["height", "width", "channels"]}
    vector = {"dtype": "float32", "names": None}
    features = {FRONT: video, "observation.state": {**vector, "shape": (15,)}, "action": {**vector, "shape": (7,)}}
    dataset = LeRobotDataset.create("engram/videos", 10, features, root=tmp_path / "videos", use_videos=True)
    rng = np.random.default_rng(0)
    for _ in range(10):
        numbers = {"observation.state": np.ones(15, np.float32), "action": np.ones(7, np.float32)}
        dataset.add_frame({FRONT: rng.integers(0, 256, (64, 64, 3), np.uint8), **numbers, "task": "reach"})
    dataset.save_episode()
    dataset.finalize()
    return tmp_path / "videos"


def test_a_video_that_is_cut_or_missing_is_named(recorded_as_video, tmp_path):
    (video,) = recorded_as_video.rglob("*.mp4")
    places = DownsampleImages(32), tmp_path / "frames"
    assert len(load_frames(recorded_as_video, *places)) == 10
    cut(video.parent, video.name)
    with pytest.raises(InvalidInputError, match=rf"of episode 0, in .* or .*{video.name}: cannot be read: ") as error:
        load_frames(recorded_as_video, *places)
    said(error)
    video.unlink()
    with pytest.raises(InvalidInputError, match=rf"{video}: is missing; meta/episodes names it"):
        load_frames(recorded_as_video, *places)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("action.npy", lambda file: cut(file.parent, file.name)),
        ("state.npy", lambda file: file.write_bytes(b"")),
        ("last.npy", lambda file: np.save(file, np.load(file)[:-1])),
        ("last.npy", lambda file: np.save(file, np.load(file) - 20)),
        ("group.npy", lambda file: np.save(file, np.load(file) + 5)),
        ("words.npy", lambda file: np.save(file, np.load(file).astype(np.float32))),
        ("view.npy", lambda file: file.write_bytes(b"x")),
        ("embeddings0.npy", lambda file: np.save(file, np.load(file)[:1])),
        (f"{FRONT}.npy", lambda file: cut(file.parent, file.name)),
        (f"{FRONT}.npy", lambda file: file.write_bytes(b"")),
        (f"{FRONT}.npy", lambda file: np.save(file, np.load(file)[:, :, :16, :16])),
        (f"{FRONT}.npy", lambda file: file.unlink()),
        ("meta.json", lambda file: told(file.parent, file.name, lambda meta: meta.pop("groups"))),
        ("meta.json", lambda file: cut(file.parent, file.name)),
    ],
)
def test_a_damaged_cache_is_decoded_again(whole, tmp_path, capsys, file, damage):
    places = DownsampleImages(32), tmp_path / "frames"
    first = load_frames(whole, *places)
    kept = {key: np.array(array) for key, array in first.images.items()}
    damage(tmp_path / "frames" / file)
    capsys.readouterr()
    again = load_frames(whole, *places)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert line.startswith(f"cache '{tmp_path / 'frames'}': damaged, and decoded again: ")
    assert all(np.array_equal(kept[key], array) for key, array in again.images.items())
    for name in ("state", "action", "last", "words", "group", "view", "embeddings"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    load_frames(whole, *places)
    assert "damaged" not in capsys.readouterr().err


def test_a_full_disk_is_not_taken_for_a_damaged_cache(whole, tmp_path, monkeypatch, capsys):
    load_frames(whole, DownsampleImages(32), tmp_path / "frames")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        load_frames(whole, DownsampleImages(32), tmp_path / "frames", 2)
    assert "damaged" not in capsys.readouterr().err


FULL, BUG = OSError(errno.ENOSPC, "No space left on device"), TypeError("a bug")
LIBRARIES = DatasetGenerationError("An error occurred while generating the dataset")
"""As it writes its own copy of a table."""
LIBRARIES.__cause__ = FULL


@pytest.mark.parametrize(
    ("place", "name", "error", "told"),
    [
        (LeRobotDataset, "__init__", FULL, FULL),
        (LeRobotDataset, "__init__", LIBRARIES, FULL),
        (LeRobotDataset, "__init__", BUG, BUG),
        (LeRobotDataset, "__getitem__", FULL, FULL),
        (LeRobotDataset, "__getitem__", MemoryError(), MemoryError),
        (pq, "ParquetFile", FULL, FULL),
        (module, "check_finite", BUG, BUG),
        (dataset_check, "_learnt_shapes", AssertionError("a bug"), AssertionError),
    ],
)
def test_a_full_disk_used_up_memory_and_a_bug_are_not_taken_for_damaged_data(
    whole, tmp_path, monkeypatch, place, name, error, told
):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(place, name, fails)
    with pytest.raises(told if isinstance(told, type) else type(told)) as raised:
        load_frames(whole, DownsampleImages(32), tmp_path / "frames")
    assert isinstance(told, type) or raised.value is told


def test_a_column_that_nobody_recorded_is_a_bug_and_no_damaged_frame(whole):
    dataset = LeRobotDataset(NO_HUB, root=whole)
    with pytest.raises(KeyError, match="nothing"):
        module._Batches(dataset, [FRONT], DownsampleImages(32), ("nothing",))[0]


def test_what_is_added_to_a_cache_is_whole_or_not_there(whole, tmp_path, monkeypatch, capsys):
    """A process that was killed while it wrote must leave nothing to be read later."""
    load_frames(whole, DownsampleImages(32), tmp_path / "frames")

    def killed(file, array):
        file.write_bytes(array.tobytes()[:9])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            load_frames(whole, DownsampleImages(32), tmp_path / "frames", 2)
    assert load_frames(whole, DownsampleImages(32), tmp_path / "frames", 2).embeddings.shape[1] == 3 * 384
    assert "damaged" not in capsys.readouterr().err
