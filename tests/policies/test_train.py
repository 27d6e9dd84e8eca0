import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file

import engram.policies.training.frames as module
from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.errors import (
    EngramError,
    InvalidInputError,
    NonFiniteError,
    StoreLockedError,
    UnknownNameError,
    WeightsError,
)
from engram.core.lock import WriterLock
from engram.policies import EngramVLAConfig, EngramVLAPolicy, make_engram_vla_pre_post_processors
from engram.policies.lerobot.processor_engram_vla import (
    DownsampleImages,
    downsample,
    embed_instructions,
    of_shrunk_images,
)
from engram.policies.opening import checkpoint_folder
from engram.policies.training.frames import load_frames
from engram.policies.training.processes import average_gradients, training_device
from engram.policies.training.train import _on_purpose, main, policy_config, schedule
from engram.policies.training.train_config import TrainConfig
from engram.validation.training_evaluator import SimulationEvaluator

from .forks import begin, python
from .synthetic import INSTRUCTIONS, make_dataset
from .tiny import tiny_config

MODEL = (
    ("keypoints", 4), ("image_tokens_side", 2), ("dim", 16), ("layers", 2), ("heads", 2), ("head_width", 16),
    ("head_blocks", 1), ("chunk_size", 4), ("flow_draws", 2),
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("data") / "synthetic")


def config(dataset, out, **fields):
    small = {"steps": 6, "batch_size": 4, "n_action_steps": 2, "image_size": 32, "model": MODEL, "log_steps": 2}
    return TrainConfig(dataset=str(dataset), out=str(out), **{**small, **fields})


def weights(folder):
    return load_file(folder / "resume" / "state.safetensors")


def test_a_resumed_run_ends_in_the_same_bits(dataset, tmp_path):
    main(config(dataset, tmp_path / "whole"))
    main(config(dataset, tmp_path / "parts", stop_after=3))
    main(config(dataset, tmp_path / "parts", resume=True))
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert json.loads((tmp_path / "parts" / "policy" / "card.json").read_text())["step"] == 6


@pytest.fixture(scope="module")
def of_two(dataset, tmp_path_factory):
    """Where two processes learnt, spawned as a user's are."""
    folder = tmp_path_factory.mktemp("processes") / "two"
    main(config(dataset, folder, processes=2, steps=2))
    return folder


def test_two_processes_learn_from_more_than_one(dataset, of_two, tmp_path):
    main(config(dataset, tmp_path / "one", steps=2))
    two, one = weights(of_two), weights(tmp_path / "one")
    assert not all(torch.equal(two[name], one[name]) for name in one)
    assert json.loads((of_two / "policy" / "card.json").read_text())["processes"] == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_ends_in_the_bits_of_as_many_processes(dataset, of_two, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launcher += ["-m", "engram.policies.training.train"]
    flags = ["--steps", "2", "--batch-size", "4", "--n-action-steps", "2", "--image-size", "32", "--log-steps", "2"]
    model = ["--model", *(str(word) for pair in MODEL for word in pair)]
    cold = ["--cache", str(tmp_path / "cold")]  # both find nothing decoded
    words = [*launcher, "--dataset", str(dataset), "--out", str(tmp_path / "run"), *cold, *flags, *model]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    two, run = weights(of_two), weights(tmp_path / "run")
    assert two.keys() == run.keys()
    assert all(torch.equal(two[name], run[name]) for name in two)


def occupied(cache, kind):
    """Put something at ``cache`` that is none of ours; return a file in it."""
    if kind == "a file":
        cache.write_text("chapter 1")
        return cache
    there = cache / {"a folder": "thesis/main.tex", "frames and more": "notes.txt", "arrays": "results.npy"}[kind]
    there.parent.mkdir(parents=True)
    there.write_text("chapter 1")
    if kind == "frames and more":
        (cache / "meta.json").write_text(json.dumps({"source": "another dataset"}))
    return there


@pytest.mark.parametrize("kind", ["a file", "a folder", "frames and more", "arrays"])
def test_what_decoding_would_replace_is_refused_before_it_begins(dataset, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(module, "_decode", lambda *_: pytest.fail("decoded"))
    kept = occupied(tmp_path / "scratch", kind)
    with pytest.raises(
        InvalidInputError, match=rf"cache '{tmp_path}/scratch': .* choose (an empty folder or a new one|another place)"
    ):
        main(config(dataset, tmp_path / "out", cache=str(tmp_path / "scratch")))
    assert kept.read_text() == "chapter 1"


def test_an_empty_folder_and_a_link_to_one_hold_the_frames(dataset, tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large")
    load_frames(dataset, DownsampleImages(32), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "large" / "meta.json").is_file()


def test_what_a_killed_or_failed_decoding_left_is_removed(dataset, tmp_path, monkeypatch):
    cache, others = tmp_path / "frames", tmp_path / "frames.mine.partial"
    (tmp_path / "frames.77.partial").mkdir()
    others.mkdir()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_save_columns", full)
        with pytest.raises(OSError, match="No space left"):
            load_frames(dataset, DownsampleImages(32), cache)
    assert list(tmp_path.glob("*.partial")) == [others]
    assert not cache.exists()


def test_a_dataset_may_be_the_working_folder(dataset, tmp_path, monkeypatch):
    root = Path(shutil.copytree(dataset, tmp_path / "data"))
    monkeypatch.chdir(root)
    main(config(".", tmp_path / "out", steps=1))
    assert (tmp_path / "data.frames32" / "meta.json").is_file()


FULL = """
import functools, resource, signal, sys
import torch
from engram.app import cli
torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
dataset, out, cache, processes, limit = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
words = ["train", "--dataset", dataset, "--out", out, "--cache", cache, "--processes", processes, "--steps", "2"]
words += ["--batch-size", "4", "--n-action-steps", "2", "--image-size", "32", "--log-steps", "9", "--model"]
sys.exit(cli.main([*words, *(str(word) for pair in %r for word in pair)]))
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_ends_a_training_with_a_sentence_and_leaves_nothing_half_written(dataset, tmp_path, processes):
    cache, out = tmp_path / "frames", tmp_path / "out"
    load_frames(dataset, DownsampleImages(32, {}, tiny_config().crops), cache, 4)
    words = [str(dataset), str(out), str(cache), str(processes), "50000"]  # bytes: less than the weights
    ran = python("-c", FULL % (MODEL,), *words, folder=tmp_path)
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert f"{out}/resume: cannot be written: " in ran.stderr
    assert not list(out.glob("*.partial"))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left")])
def test_a_policy_that_cannot_be_written_leaves_the_last_one(dataset, tmp_path, monkeypatch, error):
    main(config(dataset, tmp_path / "out", stop_after=2))
    kept = load_file(tmp_path / "out" / "policy" / "model.safetensors")

    def fail(self, folder):
        folder.mkdir()
        raise error

    monkeypatch.setattr(EngramVLAPolicy, "save_pretrained", fail)
    with pytest.raises(EngramError, match=rf"{tmp_path}/out/policy: cannot be written: .*No space left"):
        main(config(dataset, tmp_path / "out", resume=True))
    now = load_file(tmp_path / "out" / "policy" / "model.safetensors")
    assert all(torch.equal(now[name], kept[name]) for name in kept)
    assert not list((tmp_path / "out").glob("*.partial"))


def test_an_error_of_the_system_in_another_process_is_told_as_one():
    told = "\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n  ...\n"
    assert _on_purpose(Exception(f"{told}PermissionError: [Errno 13] Permission denied: '/out'\n")).startswith("[Errno")
    assert _on_purpose(Exception(f"{told}engram.core.errors.EngramError: spent\n")) == "spent"
    assert not _on_purpose(Exception(f"{told}ValueError: a bug\n"))


def test_of_several_who_want_a_dataset_decoded_one_does_it(dataset, tmp_path, monkeypatch):
    decode, calls = module._decode, []

    def slowly(*args):
        calls.append(args)
        time.sleep(0.2)
        decode(*args)

    monkeypatch.setattr(module, "_decode", slowly)
    with ThreadPoolExecutor(3) as pool:
        loads = [pool.submit(load_frames, dataset, DownsampleImages(32), tmp_path / "frames") for _ in range(3)]
        assert len({len(load.result()) for load in loads}) == 1
    assert len(calls) == 1


def test_resuming_nothing_is_an_error(dataset, tmp_path):
    with pytest.raises(WeightsError, match="no checkpoint"):
        main(config(dataset, tmp_path / "none", resume=True))


def test_without_options_a_policy_replans_as_often_as_the_shipped_one_does():
    shipped = json.loads((checkpoint_folder("base") / "config.json").read_text())["n_action_steps"]
    assert TrainConfig(dataset="x").n_action_steps == EngramVLAConfig().n_action_steps == shipped


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"processes": 0}, "processes: 0, expected at least 1"),
        ({"steps": 0}, "steps: 0, expected at least 1"),
        ({"warmup_steps": 0}, "warmup_steps: 0, expected at least 1"),
        ({"log_steps": 0}, "log_steps: 0, expected at least 1"),
        ({"dataset": "nowhere"}, r"dataset 'nowhere': no LeRobotDataset \(it has no meta/info.json\)"),
        ({"device": "gpu"}, "unknown device 'gpu'; .*valid: auto, cpu"),
        ({"emphasis": (("stack", 0.0),)}, "emphasis of stack: 0.0, expected above 0 and finite"),
        ({"emphasis": (("stack", float("nan")),)}, "emphasis of stack: nan, expected above 0 and finite"),
        ({"emphasis": (("stack", 2.0), ("stack", 3.0))}, "emphasis: stack, stack, expected each task once"),
        ({"gradient_steps": -1}, "gradient_steps: -1, expected 0 or more"),
        ({"stop_after": -1}, "stop_after: -1, expected 0 or more"),
        ({"learning_rate": float("nan")}, "learning_rate: nan, expected a finite number above 0"),
        ({"learning_rate": -1.0}, "learning_rate: -1.0, expected a finite number above 0"),
        ({"gradient_norm": 0.0}, "gradient_norm: 0.0, expected a finite number above 0"),
        ({"weight_decay": float("nan")}, "weight_decay: nan, expected a finite number, 0 or more"),
        ({"minutes": -5.0}, "minutes: -5.0, expected a finite number, 0 or more"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes: -1.0, expected a finite number"),
        ({"balance": float("nan")}, "balance: nan, expected a finite number, 0 or more"),
        ({"foresight": float("inf")}, "foresight: inf, expected a finite number, 0 or more"),
        ({"ema_decay": 2.0}, "ema_decay: 2.0, expected at least 0 and below 1"),
        ({"seed": -1}, "seed: -1, expected 0 or more"),
        ({"random_shift": -3}, "random_shift: -3, expected 0 or more"),
        ({"image_size": 0}, "image_size: 0, expected at least 1"),
        ({"n_action_steps": 99}, r"n_action_steps: 99, expected 1\.\.4"),
        ({"batch_size": 40, "window": 16}, "batch_size: 40, expected a multiple of window, 16"),
        ({"keyframes": 0.5}, "keyframes: would change nothing, needs window"),
        ({"memory_dropout": 0.5}, "memory_dropout: would change nothing, needs a memory"),
        ({"memory_dropout": 1.0}, "memory_dropout: 1.0, expected at least 0 and below 1"),
        ({"gradient_steps": 2}, "gradient_steps: would change nothing, needs window"),
        ({"backbone": "x", "image_size": 96}, "image_size: would change nothing, needs our own network"),
        ({"start_from": "nope"}, "unknown policy 'nope'; valid: a folder, base, engram"),
        ({"model": (("nonsense", 1),)}, "unknown field of model 'nonsense'; .*valid: adaptive_m, "),
        ({"model": (("image_size", 64),)}, "unknown field of model 'image_size'"),
        ({"model": (("memory_chunk", 0),)}, "memory_chunk: 0, expected an integer above 0"),
    ],
)
def test_what_cannot_be_trained_is_named_before_anything_is_decoded(dataset, tmp_path, wrong, message):
    with pytest.raises(EngramError, match=message):
        main(dataclasses.replace(config(dataset, tmp_path / "out"), **wrong))
    assert not (tmp_path / "out").exists()


def test_who_begins_with_a_policy_sees_as_it_does(dataset, tmp_path):
    with pytest.raises(InvalidInputError, match=r"image_size.*\(32, .*: start_from 'base' sees \(64, "):
        main(config(dataset, tmp_path / "out", start_from="base", model=()))


def test_frames_of_another_dataset_or_size_in_the_cache_are_not_taken(dataset, tmp_path):
    copied, cache = tmp_path / "copied", tmp_path / "frames"
    shutil.copytree(dataset, copied)
    first = load_frames(dataset, DownsampleImages(32), cache)
    before = (cache / "meta.json").stat().st_mtime_ns
    load_frames(copied, DownsampleImages(32), cache)  # the same, elsewhere
    assert (cache / "meta.json").stat().st_mtime_ns == before
    assert load_frames(copied, DownsampleImages(16), cache).images["observation.images.front"].shape[-1] == 16
    stats = copied / "meta" / "stats.json"
    stats.write_text(stats.read_text() + " ")
    load_frames(copied, DownsampleImages(16), cache)
    assert (cache / "meta.json").stat().st_mtime_ns != before
    assert len(first) == len(load_frames(dataset, DownsampleImages(32), cache))


def _averaged(rank: int, meeting: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    used, unused = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
    used.grad = torch.tensor([1.0, 2.0]) if rank == 0 else torch.tensor([3.0, 6.0])
    said = average_gradients([used, unused], 2, torch.tensor([10.0 * rank]))
    Path(f"{out}{rank}").write_text(json.dumps([used.grad.tolist(), unused.grad, said.tolist()]))
    dist.destroy_process_group()


def test_gradients_are_the_mean_of_all_processes_in_each(forked, tmp_path):
    torch.multiprocessing.spawn(_averaged, (f"file://{tmp_path / 'meeting'}", str(tmp_path / "rank")), nprocs=2)
    for rank in range(2):
        assert json.loads((tmp_path / f"rank{rank}").read_text()) == [[2.0, 4.0], None, [5.0]]


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("auto", "cuda"):
        assert [str(training_device(name, rank)) for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert str(training_device("cuda:0", 1)) == "cuda:0"


@pytest.mark.parametrize("name", ["meta", "hip", "cpu:3", "cuda:2", "xpu", "mps", "cuda:-1", ""])
def test_a_device_that_torch_can_name_and_this_machine_lacks_is_refused_with_those_it_has(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UnknownNameError, match=f"unknown device '{name}'; .*valid: auto, cpu, cuda, cuda:0, cuda:1$"):
        training_device(name)


def test_every_kind_of_accelerator_that_this_machine_has_is_a_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for name in ("cpu", "xpu", "xpu:1", "mps", "mps:0"):
        assert str(training_device(name)) == name
    with pytest.raises(UnknownNameError, match=r"unknown device 'cuda'; .*valid: auto, cpu, mps, mps:0, xpu, xpu:0, x"):
        training_device("cuda")


def test_a_policy_that_lies_there_is_not_written_over(dataset, tmp_path):
    main(config(dataset, tmp_path, steps=1))
    with pytest.raises(InvalidInputError, match="holds a policy already; choose another folder, or --resume"):
        main(config(dataset, tmp_path, steps=1))


def test_a_number_that_is_not_finite_is_named_by_episode_and_frame(tmp_path, monkeypatch):
    def broken(size):
        return np.full(size, np.nan) if next(drawn) == 12 + 5 else rng.normal(size=size)

    drawn, rng = iter(range(100)), np.random.default_rng(0)
    monkeypatch.setattr(np.random, "default_rng", lambda _: SimpleNamespace(integers=rng.integers, normal=broken))
    root = make_dataset(tmp_path / "broken", episodes=2)
    monkeypatch.undo()
    with pytest.raises(NonFiniteError, match=r"observation\.state is not finite in frame 5 of episode 1"):
        main(config(root, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_training_that_diverges_ends_before_it_saves(forked, dataset, tmp_path, processes):
    out = tmp_path / "out"
    main(config(dataset, out, stop_after=2, processes=processes))
    kept = weights(out)
    with pytest.raises(EngramError, match=f"training, step .*not finite; the last checkpoint in {out} is kept"):
        main(config(dataset, out, resume=True, processes=processes, learning_rate=1e30))
    now = weights(out)
    assert all(torch.equal(now[name], kept[name]) for name in kept)
    assert all(tensor.isfinite().all() for tensor in load_file(out / "policy" / "model.safetensors").values())


def test_two_trainings_do_not_share_a_folder(dataset, tmp_path):
    lock = WriterLock(tmp_path / "out")
    with pytest.raises(StoreLockedError, match=f"out: already being written by process {os.getpid()}"):
        main(config(dataset, tmp_path / "out", steps=1))
    lock.release()
    assert not (tmp_path / "out" / "policy").exists()


def test_places_may_lie_at_home(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").symlink_to(dataset)
    assert main(config("~/data", "~/out", steps=1, cache="~/frames")) == tmp_path / "out" / "policy"
    assert (tmp_path / "frames" / "meta.json").is_file()


def test_an_emphasis_on_a_task_that_the_dataset_has_not_is_said_before_processes_begin(dataset, tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown emphasis 'stack'; valid: go to the blue cube, go to the red"):
        main(config(dataset, tmp_path / "out", processes=2, emphasis=(("stack", 2.0),)))
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_evaluated_in_simulation_is_said_before_training(dataset, tmp_path):
    with pytest.raises(InvalidInputError, match=r"none of go to the red cube, .* is a simulated task; valid: reach"):
        main(config(dataset, tmp_path / "out", evaluate=1), SimulationEvaluator())
    with pytest.raises(InvalidInputError, match="evaluate: this command knows no simulation; use `engram train`"):
        main(config(dataset, tmp_path / "out", evaluate=1))
    assert not (tmp_path / "out").exists()


class Measured(SimulationEvaluator):
    """Takes any task; notes the robots that it was to measure on."""

    def __init__(self):
        self.robots = []

    def tasks(self, groups):
        return list(groups)

    def evaluate(self, policy, tasks, robot, episodes):
        self.robots.append(robot.name)
        return {"mean": 0.5}


def recorded_on(dataset, root, robot, state=15):
    """Return a copy of ``dataset`` at ``root`` that says that ``robot`` was recorded, with ``state`` numbers."""
    path = Path(shutil.copytree(dataset, root)) / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["robot_type"] = robot
    info["features"]["observation.state"]["shape"] = [state]
    path.write_text(json.dumps(info))
    return root


@pytest.mark.parametrize(("said", "meant"), [(None, "panda_2f85"), ("panda_2f85", "panda_2f85")])
def test_the_robot_of_the_dataset_is_evaluated(dataset, tmp_path, said, meant):
    evaluator = Measured()
    main(config(recorded_on(dataset, tmp_path / "data", said), tmp_path / "out", steps=1, evaluate=1), evaluator)
    assert evaluator.robots == [meant]
    assert SimulationEvaluator().robot("so101", 13).name == "so101"


@pytest.mark.parametrize(
    ("robot", "told"),
    [
        ("gantry", "recorded on robot 'gantry', which has no simulation .*; valid: panda_2f85, so101"),
        ("so101", "robot 'so101' has 13 numbers in its state, the dataset has 15"),
    ],
)
def test_a_robot_that_cannot_be_evaluated_is_said_before_training(dataset, tmp_path, robot, told):
    with pytest.raises(InvalidInputError, match=told):
        main(config(recorded_on(dataset, tmp_path / "data", robot), tmp_path / "out", evaluate=1), Measured())
    assert not (tmp_path / "out").exists()


def test_a_training_that_is_over_keeps_its_evaluation_when_it_is_resumed(dataset, tmp_path):
    def card():
        return json.loads((tmp_path / "out" / "policy" / "card.json").read_text())

    main(config(dataset, tmp_path / "out", steps=2, evaluate=1), Measured())
    main(config(dataset, tmp_path / "out", steps=2, resume=True))
    assert (card()["step"], card()["evaluation"]) == (2, {"mean": 0.5})
    path = tmp_path / "out" / "policy" / "card.json"
    path.write_text(json.dumps(card() | {"step": 1}))  # of other weights
    main(config(dataset, tmp_path / "out", steps=2, resume=True))
    assert "evaluation" not in card()


@pytest.mark.render
@pytest.mark.slow
def test_the_final_evaluation_stands_on_the_card_with_its_interval(dataset, tmp_path):
    log = dataset / "meta" / "engram_episodes.jsonl"
    log.write_text("".join(json.dumps({"episode_index": i, "task": "reach"}) + "\n" for i in range(4)))
    trained = config(dataset, tmp_path / "out", steps=1, evaluate=1, cache=str(tmp_path / "frames"))
    folder = main(trained, SimulationEvaluator())
    log.unlink()
    rate = json.loads((folder / "card.json").read_text())["evaluation"]["per_task"]["reach"]
    assert rate["n"] == 1
    assert 0.0 <= rate["low"] < rate["high"] <= 1.0


def test_chunks_stay_within_their_episode(dataset, tmp_path):
    frames = load_frames(dataset, DownsampleImages(32), tmp_path / "frames", skip_idle=False)
    batch = frames.batch(np.array([0, 10, 47]), 4)  # episodes of 12 frames: the first, the last but one, the very last
    torch.testing.assert_close(batch["action"][0, :, 0], torch.tensor([0.0, 0.01, 0.02, 0.03]))
    torch.testing.assert_close(batch["action"][1, :, 0], torch.tensor([0.10, 0.11, 0.0, 0.0]))  # then it rests
    torch.testing.assert_close(batch["action"][1, :, -1], torch.tensor(frames.action[[10, 11, 11, 11], -1]))
    assert not batch[UNLEARNT_KEY].any()  # rest is learnt: left out, it would tell how far the end is


def test_actions_without_any_motion_are_not_learnt(dataset, tmp_path):
    frames = load_frames(dataset, DownsampleImages(32), tmp_path / "frames")
    assert np.flatnonzero(frames.idle).tolist() == [0]  # whatever the gripper is told; 0.01 is a motion
    batch = frames.batch(np.array([0, 11]), 3)
    assert batch[UNLEARNT_KEY].tolist() == [[True, False, False], [False, False, False]]


def test_a_cache_of_another_layout_is_decoded_again(dataset, tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(module, "LAYOUT", 1)
        load_frames(dataset, DownsampleImages(16), tmp_path / "frames")
    told = tmp_path / "frames" / "meta.json"
    old = json.loads(told.read_text())
    told.write_text(json.dumps({name: value for name, value in old.items() if name != "context"}))
    assert load_frames(dataset, DownsampleImages(16), tmp_path / "frames").context is None


def test_cached_frames_are_what_the_network_sees_live(dataset, tmp_path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    wanted = tiny_config(15, image_size=16, crops={"observation.images.front": (0.25, 0.0, 0.75)})
    frames = load_frames(dataset, DownsampleImages(16, {}, wanted.crops), tmp_path / "frames")
    pre, _ = make_engram_vla_pre_post_processors(wanted)
    cached = of_shrunk_images(pre)(frames.batch(np.array([5]), 4))
    sample = LeRobotDataset("engram/synthetic", root=dataset)[5]
    live = pre({k: v for k, v in sample.items() if k.startswith("observation.") or k == "task"})
    for key in ("observation.images.front", "observation.images.wrist", "observation.language.embedding"):
        assert torch.equal(cached[key], live[key]), key


@pytest.mark.parametrize(("shape", "cut"), [((64, 64, 3), True), ((48, 64, 3), False)])
def test_only_square_pictures_are_cut_to_our_table(dataset, tmp_path, shape, cut):
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

    meta = LeRobotDatasetMetadata("engram/synthetic", root=dataset)
    front = {**meta.features["observation.images.front"], "shape": shape}
    seen = SimpleNamespace(features={**meta.features, "observation.images.front": front}, fps=10)
    assert bool(policy_config(config(dataset, tmp_path), seen).crops) == cut


def test_tasks_are_balanced_by_the_power(dataset, tmp_path):
    log = dataset / "meta" / "engram_episodes.jsonl"
    log.write_text("".join(json.dumps({"episode_index": i, "task": "ab"[i > 2]}) + "\n" for i in range(4)))
    frames = load_frames(dataset, DownsampleImages(32), tmp_path / "frames")
    log.unlink()
    assert frames.groups == ("a", "b")  # 36 and 12 frames
    assert frames.instructions == INSTRUCTIONS
    for power, share in ((0.0, 0.5), (1.0, 0.75), (0.5, 3**0.5 / (1 + 3**0.5))):
        assert frames.sampling_weights(power)[frames.group == 0].sum() == pytest.approx(share)
    weights = frames.sampling_weights(0.0, {"b": 3.0})
    assert weights.sum() == pytest.approx(1.0)
    assert weights[frames.group == 1].sum() == pytest.approx(0.75)
    with pytest.raises(UnknownNameError, match=r"emphasis .c.*a, b"):
        frames.sampling_weights(0.0, {"c": 3.0})


def test_downsampling_averages_areas_and_rounds():
    image = torch.tensor([[0, 1, 10, 20], [2, 2, 30, 40]] * 2, dtype=torch.uint8).repeat(3, 1, 1)
    assert downsample(image, 2)[0].tolist() == [[1, 25], [1, 25]]  # (0 + 1 + 2 + 2) / 4 = 1.25, (10 + .. + 40) / 4 = 25
    assert torch.equal(downsample(image / 255.0, 2), downsample(image, 2))
    assert downsample(image, 1, crop=(0.5, 0.5, 0.5))[0].tolist() == [[25]]  # the bottom right quarter
    with pytest.raises(InvalidInputError, match="smaller than the policy's 8 px"):
        downsample(image, 8)
    with pytest.raises(InvalidInputError, match="smaller than the policy's 4 px"):  # not taken for one cut before
        downsample(image, 4, crop=(0.5, 0.5, 0.5))


def test_an_instruction_is_embedded_whole_and_in_pieces():
    whole, first, second = embed_instructions(["red cube on blue cube"], 2)[0].split(384)
    for vector, words in ((whole, "red cube on blue cube"), (first, "red cube on"), (second, "blue cube")):
        torch.testing.assert_close(vector, embed_instructions([words])[0])


def test_pieces_tell_the_order_of_words():
    a, b = "set the red block on the yellow block", "set the yellow block on the red block"
    whole, other = embed_instructions([a, b], 4).split([384, 4 * 384], dim=1)
    assert (whole[0] - whole[1]).norm() < 0.5 * (other[0] - other[1]).norm()


def test_learning_rate_rises_then_falls():
    assert schedule(0, 10, 0.0) == pytest.approx(0.1)
    assert schedule(10, 10, 0.0) == pytest.approx(1.0)
    assert schedule(60, 10, 0.5) == pytest.approx(0.505)
    assert schedule(110, 10, 1.0) == pytest.approx(0.01)


ALONE = """
import os, signal, time
import torch
import engram.policies.training.train as train


def sleep(rank, *_):
    print(os.getpid(), flush=True)
    time.sleep(120)


signal.signal(signal.SIGINT, signal.SIG_IGN)
train._worker = sleep
torch.multiprocessing.start_processes(train._spawned, (os.getpid(), 2, None, ""), nprocs=2, start_method="fork")
"""


def test_processes_of_a_training_in_the_background_end_with_it(tmp_path):
    """What a shell script began with & ignores SIGINT, and so do its children."""
    begun, (said, errors) = begin("-c", ALONE, folder=tmp_path)
    end = time.monotonic() + 100
    while len(children := said.read_text().split() if said.exists() else []) < 2:
        assert begun.is_alive() and time.monotonic() < end, errors.read_text()
        time.sleep(0.05)
    assert all(map(running, children))
    begun.kill()
    begun.join()
    end = time.monotonic() + 20
    while left := [child for child in children if running(child)]:
        assert time.monotonic() < end, f"still running: {left}"
        time.sleep(0.05)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
