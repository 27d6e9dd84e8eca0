"""``engram weights``: the versions of a learner, their ancestry, and what became of them."""

import json
import sqlite3

import numpy as np
from safetensors.numpy import save

from engram.app.cli import main
from engram.learning.weights.library import FILE, WeightsLibrary
from engram.learning.weights.manifest import make_manifest


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


def test_a_folder_without_weights_is_named(tmp_path, capsys):
    assert main(["weights", str(tmp_path)]) == 2
    assert f"learner: {tmp_path} holds no weights" in capsys.readouterr().err
