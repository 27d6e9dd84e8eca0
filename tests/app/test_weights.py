"""``engram weights``: the versions of a learner, their ancestry, and what became of them."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from engram.app.cli import main
from engram.core.types import ActionSource
from engram.learning.experience.store import ExperienceStore
from engram.learning.weights.library import FILE, WeightsLibrary
from engram.learning.weights.manifest import make_manifest
from engram.learning.workspace import EXPERIENCE
from engram.policies.checkpoint import export
from engram.policies.loading import load_policy
from engram.policies.opening import open_policy
from tests.learning.transitions import episode
from tests.policies.tiny import tiny_vla


def test_versions_are_told_beside_the_running_learner(tmp_path, capsys):
    library = WeightsLibrary(tmp_path / "weights")
    parent = ""
    for number, name in enumerate(("first", "second", "third")):
        data = save({"w": np.full(3, number + 1, np.float32)})
        library.add(data, make_manifest(data, name, parent, metrics={"successes": 30 * number, "updates": 1200}))
        parent = name
    library.approve("first", "training began with these weights")
    library.approve("second", "the gate: not worse")
    library.roll_back("", "worse on the robots")
    with sqlite3.connect(tmp_path / "weights" / FILE) as file:
        file.execute("UPDATE versions SET manifest = replace(manifest, '60', '90') WHERE version = 'third'")
    assert main(["weights", str(tmp_path)]) == 0
    told = capsys.readouterr()
    said = json.loads(told.out.splitlines()[-1])
    assert said["deployed"] == ["first"]
    first, second, third = said["versions"]
    assert (first["drives"], first["stage"]) == (True, "approved")
    assert (second["parent"], second["stage"], second["metrics"]["because"]) == (
        *("first", "rolled_back", "worse on the robots"),
    )
    assert (third["stage"], "its digest does not fit" in third["error"]) == ("unreadable", True)
    assert "Drives: first" in told.err
    library.close()


def test_what_the_gate_rejected_is_told_from_what_it_could_not_show(tmp_path, capsys):
    library = WeightsLibrary(tmp_path / "weights")
    for number, name in enumerate(("first", "worse", "open")):
        data = save({"w": np.full(3, number + 1, np.float32)})
        library.add(data, make_manifest(data, name))
    library.approve("first", "training began with these weights")
    library.mark("worse", "rejected", "the gate: reject, worse: reach")
    library.mark("open", "candidate", "the gate: not_shown, not shown within 200 pairs")
    library.close()
    assert main(["weights", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])["versions"][1:]
    assert [(one["stage"], one["metrics"]["because"].split(",")[0]) for one in said] == [
        ("rejected", "the gate: reject"),
        ("candidate", "the gate: not_shown"),
    ]


@pytest.mark.parametrize("width", [200, 80, 66, 40, 24])
def test_a_versions_name_is_told_whole_at_any_width(tmp_path, capsys, monkeypatch, width):
    names = ["candidate-0000040-a1b2c3d4", "candidate-0000080-e5f6a7b8"]
    library, parent = WeightsLibrary(tmp_path / "weights"), ""
    for number, name in enumerate(names):
        data = save({"w": np.full(3, number + 1, np.float32)})
        metrics = {"because": "the gate: not_shown, not shown within 200 pairs", "successes": 60, "updates": 1200}
        library.add(data, make_manifest(data, name, parent, metrics=metrics))
        parent = name
    library.close()
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["weights", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in told.splitlines() if line.startswith("│")]
    assert "…" not in told
    assert "".join(row[0] for row in rows) == "".join(names)
    if width >= 66:
        assert [row[0] for row in rows if row[0]] == names  # to be copied


def test_a_folder_without_weights_is_named(tmp_path, capsys):
    assert main(["weights", str(tmp_path)]) == 2
    assert f"learner: {tmp_path} holds no weights" in capsys.readouterr().err


# -- a version as a checkpoint -----------------------------------------------------------------------------------------


@pytest.fixture
def learnt(tmp_path):
    """A learner that began with the checkpoint ``began`` and made v1; return the weights of v1."""
    tiny, other = tiny_vla(), tiny_vla(seed=1)
    export(tmp_path / "began", tiny.network, tiny.preprocess, tiny.postprocess, {"tasks": ["reach"], "step": 9})
    (tmp_path / "began" / "model.safetensors").chmod(0o444)
    weights = {name: tensor.contiguous().clone() for name, tensor in other.network.state_dict().items()}
    library, data = WeightsLibrary(tmp_path / "learner" / "weights"), save_torch(weights)
    lineage = open_policy(tmp_path / "began").lineage
    library.add(data, make_manifest(data, "v1", lineage=lineage))
    library.add(data, make_manifest(data, "v0"))
    library.add(data, make_manifest(data, "after", "v1", lineage=lineage))
    yield weights
    library.close()


def exported(tmp_path, *words):
    """Return the exit code of an export from that learner."""
    return main(["weights", str(tmp_path / "learner"), "--policy", str(tmp_path / "began"), *words])


def test_a_version_becomes_a_checkpoint_beside_the_running_learner(learnt, tmp_path, capsys):
    assert exported(tmp_path, "--export", "v1", "--output", str(tmp_path / "new" / "learnt")) == 0
    said, folder = json.loads(capsys.readouterr().out.splitlines()[-1]), tmp_path / "new" / "learnt"
    assert [path.name for path in folder.parent.iterdir()] == ["learnt"] and said["exported"] == str(folder)
    loaded = load_policy(folder)
    assert all(torch.equal(tensor, learnt[name]) for name, tensor in loaded.network.state_dict().items())
    card = json.loads((folder / "card.json").read_text())
    assert (card["tasks"], card["sha256"]) == (["reach"], loaded.lineage.root)
    assert "step" not in card  # that was of the weights that learning began with
    assert {"exported": str(folder)} | card["learnt"] == said
    assert (said["version"], said["learner"]) == ("v1", str(tmp_path / "learner"))
    assert (said["sha256"], said["lineage"]["root"]) == (
        *(loaded.lineage.root, open_policy(tmp_path / "began").lineage.root),
    )


def test_what_the_learner_was_taught_is_on_the_card_of_what_it_learnt(learnt, tmp_path):
    store = ExperienceStore(tmp_path / "learner" / EXPERIENCE)
    its = episode(0, source=ActionSource("began", open_policy(tmp_path / "began").lineage.id))
    store.append([replace(step, task="", instruction="open the drawer", author="v1") for step in its])
    store.commit()
    store.close()
    for version, tasks in (("v1", ["reach"]), ("after", ["reach", "open_drawer"])):  # nothing was learnt before v1
        assert exported(tmp_path, "--export", version, "--output", str(tmp_path / version)) == 0
        assert json.loads((tmp_path / version / "card.json").read_text())["tasks"] == tasks


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--export", "v2", "--output", "{new}"], "unknown weights version 'v2'"),
        (["--export", "v1"], "--output: None, expected a new folder"),
        (["--export", "v1", "--output", "{began}"], "began, expected a new folder"),
        (["--export", "v1", "--output", "{began}/card.json/new"], "no checkpoint can be written of "),
        (["--export", "v1", "--output", "{new}", "--policy", "base"], "/began ("),
        (["--export", "v1", "--output", "{new}", "--policy", "base"], "for policy base: of lineage "),
        (["--export", "v1", "--output", "{new}", "--policy", "base"], ", expected base ("),
        (["--export", "v1", "--output", "{new}", "--policy", "bse"], "unknown policy 'bse'"),
        (["--export", "v0", "--output", "{new}"], "weights 'v0' for policy {began}: no lineage is given, expected"),
        (["--output", "{new}"], "would change nothing without --export"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(learnt, tmp_path, capsys, words, why):
    places = {"new": tmp_path / "new", "began": tmp_path / "began"}
    assert exported(tmp_path, *(word.format(**places) for word in words)) == 2
    assert why.format(**places) in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["began", "learner"]


def test_damaged_weights_are_not_exported(learnt, tmp_path, capsys):
    (file,) = (tmp_path / "learner" / "weights").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert exported(tmp_path, "--export", "v1", "--output", str(tmp_path / "new")) == 2
    assert "weights 'v1': sha256" in capsys.readouterr().err and not (tmp_path / "new").exists()
