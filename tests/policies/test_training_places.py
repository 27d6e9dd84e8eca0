"""What a training cannot read or write is said before it begins, and a failed one leaves nothing behind."""

import json
import resource
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from engram.core.errors import EngramError, InvalidInputError, UnknownNameError, WeightsError
from engram.policies import EngramVLAPolicy
from engram.policies.checkpoint import WEIGHTS
from engram.policies.training import relight, train
from engram.policies.training.relight_config import RelightConfig

from .synthetic import make_dataset
from .test_train import Measured, config


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("data") / "synthetic")


@pytest.fixture(scope="module")
def begun(dataset, tmp_path_factory):
    out = tmp_path_factory.mktemp("begun")
    train.main(config(dataset, out, stop_after=2))
    return out


def trained(dataset, begun, out, **fields):
    train.main(config(dataset, out, start_from=str(begun / "policy"), **fields))


def relit(dataset, begun, out, **fields):
    relight.main(RelightConfig(str(dataset), str(out), str(begun / "policy"), steps=2, batch_size=4, **fields))


BOTH = pytest.mark.parametrize("run", [trained, relit])


def files(*folders):
    return sorted(path for folder in folders for path in Path(folder).rglob("*"))


@BOTH
def test_out_and_cache_do_not_lie_in_what_is_read_and_are_no_files(dataset, begun, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    before = files(dataset, begun, tmp_path)
    for place, told in (
        (dataset, f"lies in dataset '{dataset}'"),
        (dataset / "meta" / "new", f"lies in dataset '{dataset}'"),
        (begun / "policy" / "new", f"lies in start_from '{begun}/policy'"),
        (tmp_path / "file", f"{tmp_path}/file is no folder"),
        (tmp_path / "file" / "new", f"{tmp_path}/file is no folder"),
    ):
        with pytest.raises(InvalidInputError, match=f"^out '{place}': {told}"):
            run(dataset, begun, place)
        with pytest.raises(InvalidInputError, match=f"^cache '{place}': {told}"):
            run(dataset, begun, tmp_path / "out", cache=str(place))
    with pytest.raises(InvalidInputError, match=r"^out '': expected the name of a folder"):
        run(dataset, begun, "")
    assert files(dataset, begun, tmp_path) == before


@BOTH
def test_a_device_that_is_not_there_is_named_before_anything_is_decoded(dataset, begun, tmp_path, run):
    for name in ("meta", "cpu:3", ""):
        with pytest.raises(UnknownNameError, match=rf"unknown device '{name}'; .*valid: auto, cpu"):
            run(dataset, begun, tmp_path / "out", device=name, cache=str(tmp_path / "frames"))
    assert not list(tmp_path.iterdir())


@BOTH
@pytest.mark.parametrize("before", [(), ("out",), ("out", "out/notes")])
def test_a_full_disk_is_told_before_the_first_step_and_leaves_what_there_was(
    dataset, begun, tmp_path, run, monkeypatch, before
):
    for name in before:
        (tmp_path / name).touch() if name.endswith("notes") else (tmp_path / name).mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: pytest.fail("trained"))
    with pytest.raises(EngramError, match=rf"{tmp_path}/out: \d+ bytes are needed on its disk, 1000 are free"):
        run(dataset, begun, tmp_path / "out")
    left = [str(path.relative_to(tmp_path)) for path in files(tmp_path)]
    assert [name for name in left if name != "out/writer.lock" or "out/notes" not in before] == [*before]


def test_the_room_that_is_asked_for_is_that_of_what_is_written(dataset, tmp_path, monkeypatch):
    """Two states, of the weights, their average and AdamW's moments, beside each other, and the policy."""
    asked = []
    monkeypatch.setattr(train, "check_free", lambda _, needed: asked.append(needed))
    train.main(config(dataset, tmp_path / "out", stop_after=2))
    train.main(config(dataset, tmp_path / "out", resume=True))
    state, policy = ((tmp_path / "out" / at).stat().st_size for at in ("resume/state.safetensors", "policy/" + WEIGHTS))
    assert asked[0] == pytest.approx(2 * state + policy, rel=0.15)
    assert asked[1] == pytest.approx(state + policy, rel=0.15)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left")])
def test_a_policy_in_other_light_that_cannot_be_written_leaves_no_folder(dataset, begun, tmp_path, monkeypatch, error):
    def fail(self, folder):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        raise error

    monkeypatch.setattr(EngramVLAPolicy, "save_pretrained", fail)
    monkeypatch.setattr(relight.Relighting, "error_px", lambda *_: 1.0)
    with pytest.raises(EngramError, match=f"^{tmp_path}/out/policy: cannot be written: .*No space left"):
        relit(dataset, begun, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_policy_whose_successor_cannot_take_its_place_is_put_back(dataset, begun, tmp_path, monkeypatch):
    out, rename = Path(shutil.copytree(begun, tmp_path / "out")), Path.rename

    def fail(self, target):
        if self.name.endswith(".partial") and target.name == "policy":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(EngramError, match=r"out/policy: cannot be written: .*No space left"):
        train.main(config(dataset, out, resume=True))
    assert (out / "policy" / WEIGHTS).read_bytes() == (begun / "policy" / WEIGHTS).read_bytes()


def test_a_policy_that_its_owner_moved_aside_stays(dataset, tmp_path):
    train.main(config(dataset, tmp_path / "out", stop_after=1))
    (tmp_path / "out" / "policy").rename(tmp_path / "out" / "policy.old")
    train.main(config(dataset, tmp_path / "out", resume=True, stop_after=2))
    train.main(config(dataset, tmp_path / "out", resume=True, stop_after=3))
    assert json.loads((tmp_path / "out" / "policy.old" / "card.json").read_text())["step"] == 1


def test_a_card_that_cannot_take_an_evaluation_stays_as_it_was(dataset, tmp_path, monkeypatch):
    class Full(Measured):
        def evaluate(self, *_):
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
            return {"mean": 0.5}

    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(OSError, match="File too large"):
            train.main(config(dataset, tmp_path / "out", steps=1, evaluate=1), Full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert json.loads((tmp_path / "out" / "policy" / "card.json").read_text())["step"] == 1


def damaged(begun, out, name, change):
    path = Path(shutil.copytree(begun, out)) / "resume" / name
    path.write_bytes(change(path.read_bytes()))
    return out


def told(**values):
    return lambda data: json.dumps(json.loads(data) | values).encode()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("state.safetensors", lambda data: data[: len(data) // 2], "not a readable safetensors file"),
        ("state.safetensors", lambda data: b"", "not a readable safetensors file"),
        ("state.safetensors", lambda data: b"PK\x03\x04" * 999, "not a readable safetensors file"),
        ("progress.json", lambda data: b"", "cannot be read"),
        ("progress.json", lambda data: b"[1, 2]", "cannot be read"),
        ("progress.json", lambda data: b"{}", "step: None, expected a finite number, 0 or more"),
        ("progress.json", told(step="3"), "step: '3', expected a finite number, 0 or more"),
        ("progress.json", told(step=-3), "step: -3, expected a finite number, 0 or more"),
        ("progress.json", told(step=1.5), "step: 1.5, expected a finite number, 0 or more"),
        ("progress.json", told(trained_s=float("nan")), "trained_s: nan, expected a finite number, 0 or more"),
        ("progress.json", told(share=None), "share: None, expected a finite number, 0 or more"),
        ("progress.json", told(processes="1"), "processes: '1', expected a finite number, 0 or more"),
        ("progress.json", told(frozen=1), "frozen: 1, expected true or false"),
        ("progress.json", told(walk=[1]), r"walk: \[1\], expected an object"),
    ],
)
def test_a_damaged_checkpoint_is_named_before_anything_is_decoded(
    dataset, begun, tmp_path, monkeypatch, name, change, message
):
    monkeypatch.setattr(train, "load_frames", lambda *_, **__: pytest.fail("decoded"))
    out = damaged(begun, tmp_path / "out", name, change)
    with pytest.raises(WeightsError, match=f"^{out}/resume/{name}: {message}"):
        train.main(config(dataset, out, resume=True))


def test_a_training_that_froze_nothing_does_not_go_on_frozen(dataset, begun, tmp_path):
    out = damaged(begun, tmp_path / "out", "progress.json", told(frozen=True))
    with pytest.raises(WeightsError, match=r"progress.json: frozen: True, expected false without freeze_perc"):
        train.main(config(dataset, out, resume=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"optimizer.x": torch.zeros(1)}), "has unknown tensor 'optimizer.x'"),
        (lambda t: t.update({"optimizer.0.exp_avg": torch.zeros(3, 5)}), r"what it has of optimizer.0 does not fit \("),
        (lambda t: t.pop("optimizer.0.exp_avg_sq"), r"what it has of optimizer.0 does not fit \("),
        (lambda t: t.update({n: v * torch.nan for n, v in t.items() if n.startswith("ema.")}), "is not finite"),
    ],
)
def test_a_checkpoint_whose_tensors_make_no_sense_is_not_gone_on_from(dataset, begun, tmp_path, change, message):
    out = Path(shutil.copytree(begun, tmp_path / "out"))
    tensors = load_file(out / "resume" / "state.safetensors")
    change(tensors)
    save_file(tensors, out / "resume" / "state.safetensors")
    with pytest.raises(WeightsError, match=f"^{out}/resume/state.safetensors: .*{message}"):
        train.main(config(dataset, out, resume=True))
    assert (out / "policy" / WEIGHTS).read_bytes() == (begun / "policy" / WEIGHTS).read_bytes()


def test_nothing_to_resume_is_said_before_anything_is_decoded(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "load_frames", lambda *_, **__: pytest.fail("decoded"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "resume").touch()
    for out in ("none", "out"):
        with pytest.raises(WeightsError, match=f"{tmp_path}/{out}/resume/progress.json: no checkpoint to resume from"):
            train.main(config(dataset, tmp_path / out, resume=True))
    assert not (tmp_path / "none").exists()


def test_a_training_that_diverges_before_it_saved_leaves_no_folder(dataset, tmp_path):
    with pytest.raises(EngramError, match="not finite; nothing was saved"):
        train.main(config(dataset, tmp_path / "deep" / "out", learning_rate=1e30, log_steps=99))
    assert not list(tmp_path.iterdir())
