"""``engram relight``: what it changes of a policy, and what it leaves."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engram.app import cli
from engram.core.errors import EngramError, InvalidInputError, StoreLockedError
from engram.core.lock import WriterLock
from engram.policies.checkpoint import WEIGHTS
from engram.policies.lerobot.processor_engram_vla import DownsampleImages
from engram.policies.opening import open_policy
from engram.policies.training import relight
from engram.policies.training.frames import load_frames
from engram.policies.training.relight import Relighting, in_other_light, main
from engram.policies.training.relight_config import RelightConfig
from engram.policies.training.train import main as train

from .synthetic import INSTRUCTIONS, make_dataset
from .test_train import config as train_config
from .tiny_lerobot import save_tiny


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("data") / "synthetic", episodes=8)


@pytest.fixture(scope="module")
def policy(dataset, tmp_path_factory):
    """A policy with sharp keypoints: those of one that has hardly learnt lie in the middle, whatever it sees."""
    folder = train(train_config(dataset, tmp_path_factory.mktemp("trained"), model=(("keypoints", 4), ("dim", 16))))
    save_file({n: t * (10.0 if "heat.weight" in n else 1.0) for n, t in weights(folder).items()}, folder / WEIGHTS)
    return folder


@pytest.fixture(autouse=True)
def patches(monkeypatch):
    """Each picture shows a patch of some colour on a grey table, instead of noise."""

    def picture(side, rng):
        made = np.full((3, side, side), 110, np.uint8)
        row, column = rng.integers(2, side - 8, 2)
        made[:, row : row + 6, column : column + 6] = rng.integers(0, 256, (3, 1, 1))
        return made

    def load(*args, **options):
        frames = load_frames(*args, **options)
        rng = np.random.default_rng(0)
        shown = {key: np.stack([picture(a.shape[-1], rng) for _ in a]) for key, a in frames.images.items()}
        return dataclasses.replace(frames, images=shown)

    monkeypatch.setattr(relight, "load_frames", load)


def config(dataset, out, policy, **fields):
    return RelightConfig(str(dataset), str(out), str(policy), **{"steps": 150, "batch_size": 16, **fields})


def weights(folder):
    return load_file(folder / WEIGHTS)


def test_the_camera_encoders_learn_and_nothing_else_changes(dataset, policy, tmp_path):
    said = main(config(dataset, tmp_path, policy))
    assert 0 < said["keypoints_off_px"]["after"] < 0.8 * said["keypoints_off_px"]["before"]
    before, after = weights(policy), weights(tmp_path / "policy")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith("model.encoders.") for name in changed)
    for name in ("config.json", "policy_preprocessor.json", "policy_postprocessor.json"):
        assert (tmp_path / "policy" / name).read_text() == (policy / name).read_text()
    opened = open_policy(tmp_path / "policy")
    assert set(opened.instructions) == set(INSTRUCTIONS)
    card = json.loads((tmp_path / "policy" / "card.json").read_text())
    began = json.loads((policy / "card.json").read_text())
    assert card["started_from"]["sha256"] == began["sha256"] != card["sha256"]
    assert card["keypoints_off_px"] == said["keypoints_off_px"] and card["tasks"] == began["tasks"]


def test_the_encoders_learn_under_other_words_too(dataset, policy, tmp_path, monkeypatch):
    """Those of the dataset alone leave the pictures of other tasks, and words nobody said, as badly seen as before."""
    opened = open_policy(policy)
    shrink = next(step for step in opened.preprocess.steps if isinstance(step, DownsampleImages))
    frames = relight.load_frames(dataset, shrink, tmp_path / "cache", opened.policy.config.language_pieces)
    one = dataclasses.replace(frames, words=np.zeros_like(frames.words))  # all is recorded under one instruction

    def strayed(out):
        """How far the keypoints are off under words far from that one [pixels]."""
        job = Relighting(config(dataset, out, policy), open_policy(policy).policy, opened, one, {})
        taught = open_policy(out / "policy").policy.model.encoders
        strange = torch.randn(1, job.network.config.dim, generator=torch.Generator().manual_seed(1))
        with monkeypatch.context() as patch:
            patch.setattr(job, "_words", lambda embeddings: strange.expand(len(embeddings), -1))
            return job.error_px(taught)

    monkeypatch.setattr(relight, "load_frames", lambda *args, **options: one)
    main(config(dataset, tmp_path / "other", policy, steps=400))
    monkeypatch.setattr(relight, "OWN_WORDS_SHARE", 1.0)
    main(config(dataset, tmp_path / "own", policy, steps=400))
    assert strayed(tmp_path / "other") < 0.9 * strayed(tmp_path / "own")


def test_the_same_seed_makes_the_same_weights(dataset, policy, tmp_path):
    made = [main(config(dataset, tmp_path / name, policy, steps=3, seed=seed)) for name, seed in (("a", 1), ("b", 1))]
    main(config(dataset, tmp_path / "c", policy, steps=3, seed=2))
    first, again, other = (weights(tmp_path / name / "policy") for name in "abc")
    assert made[0]["keypoints_off_px"] == made[1]["keypoints_off_px"]
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_pictures_are_altered_each_in_its_own_way_and_some_stay():
    torch.manual_seed(0)
    pictures = torch.randint(0, 256, (400, 3, 8, 8), dtype=torch.uint8)
    altered = in_other_light(pictures)
    assert altered.dtype == torch.uint8 and altered.shape == pictures.shape
    same = (altered == pictures).flatten(1).all(1).float().mean()
    assert 0.08 < same < 0.25
    brighter = altered.float().mean((1, 2, 3)) / pictures.float().mean((1, 2, 3))
    assert brighter.min() < 0.7 and brighter.max() > 1.2  # 255 is the brightest
    assert torch.equal(in_other_light(pictures, 0.0), pictures)


def test_a_table_changes_its_colour_more_than_a_cube_does():
    torch.manual_seed(0)
    table, cube = torch.full((300, 3, 4, 4), 90, dtype=torch.uint8), torch.zeros((300, 3, 4, 4), dtype=torch.uint8)
    cube[:, 0] = 90
    spread = []
    for altered in (in_other_light(table), in_other_light(cube)):
        red = altered.float()[:, 0].mean((1, 2))
        spread.append(float(red.log().std()))
    assert spread[0] > 1.05 * spread[1]


def test_what_cannot_be_taught_is_named(dataset, policy, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InvalidInputError, match=r"dataset '.*nowhere': no LeRobotDataset"):
        main(config(tmp_path / "nowhere", out, policy))
    with pytest.raises(InvalidInputError, match=r"a policy of type act, expected engram_vla"):
        main(config(dataset, out, save_tiny("act", tmp_path / "act")))
    with pytest.raises(EngramError, match="wrong"):
        main(config(dataset, out, tmp_path / "wrong"))
    for fields, message in (
        ({"steps": 0}, "steps: 0, expected at least 1"),
        ({"batch_size": 1}, "batch_size: 1, expected 2 to 8192"),
        ({"strength": float("nan")}, "strength: nan, expected 0 to 2"),
        ({"learning_rate": 0.0}, "learning_rate: 0.0, expected above 0, at most 1"),
        ({"learning_rate": 1e308}, "learning_rate: 1e[+]308, expected above 0, at most 1"),
        ({"seed": -1}, "seed: -1, expected 0 or more"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            config(dataset, out, policy, **fields)
    assert not out.exists()
    lock = WriterLock(out)
    with pytest.raises(StoreLockedError):
        main(config(dataset, out, policy))
    lock.release()
    (out / "policy").mkdir(parents=True)
    with pytest.raises(InvalidInputError, match=r"holds a policy already; choose another folder"):
        main(config(dataset, out, policy))


def test_a_camera_that_the_dataset_lacks_is_named(dataset, policy, tmp_path, monkeypatch):
    def without_wrist(*args, **fields):
        frames = load_frames(*args, **fields)
        return dataclasses.replace(frames, images={k: v for k, v in frames.images.items() if "wrist" not in k})

    monkeypatch.setattr(relight, "load_frames", without_wrist)
    with pytest.raises(InvalidInputError, match=r"no pictures observation.images.wrist, which .*there are observation"):
        main(config(dataset, tmp_path / "out", policy))


def test_what_became_worse_or_not_finite_is_not_saved(dataset, policy, tmp_path, monkeypatch):
    with pytest.raises(
        EngramError, match=r"off by [0-9.]+ px, before by .*; nothing was saved; try more steps or a lower"
    ):
        main(config(dataset, tmp_path, policy, learning_rate=1.0, steps=3))
    monkeypatch.setattr(relight, "_distance", lambda seen, told: (seen - told).square().mean() / 0.0)
    with pytest.raises(EngramError, match="not finite; nothing was saved; try a lower learning_rate"):
        main(config(dataset, tmp_path, policy, steps=3))
    assert not (tmp_path / "policy").exists()


def test_a_camera_that_was_covered_leaves_the_other_its_say():
    torch.manual_seed(0)
    covered = torch.ones(8, 4) * 0.3
    assert float(relight._distance(covered + 1e-3, covered)) < 0.1


@pytest.mark.parametrize(("episodes", "held"), [(1, [0]), (2, [1]), (20, [19]), (45, [19, 39])])
def test_whole_episodes_are_held_out(episodes, held):
    last = np.repeat(np.arange(2, 3 * episodes, 3), 3)
    learnt, held_out = relight._parted(last)
    assert sorted({int(row) // 3 for row in held_out}) == held and len(held_out) == 3 * len(held)
    assert episodes == 1 or not set(learnt) & set(held_out)
    assert len(set(learnt) | set(held_out)) == 3 * episodes


def test_the_largest_seed_is_none_too_large(dataset, policy, tmp_path):
    main(config(dataset, tmp_path, policy, seed=2**70, steps=50))


def test_the_command_prints_the_folder(dataset, policy, tmp_path, capsys):
    out = str(tmp_path / "out")
    words = ["relight", "--dataset", str(dataset), "--out", out, "--start-from", str(policy), "--steps", "50"]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["policy"] == f"{out}/policy"
