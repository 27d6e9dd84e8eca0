"""Versions on disk: which drove, promotion, rollback, damage."""

import os

import numpy as np
import pytest
from safetensors.numpy import save

from engram.core.errors import UnknownNameError, WeightsError
from engram.core.types import Lineage
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest

LINEAGE = Lineage("r", "a", "n", "base")


def weights(value: float) -> bytes:
    return save({"w": np.full(3, 1 + value, np.float32)})


@pytest.fixture
def library(tmp_path):
    made = WeightsLibrary(tmp_path)
    for i, name in enumerate(("a", "b", "c")):
        made.add(weights(i), make_manifest(weights(i), name, lineage=LINEAGE))
    return made


def test_promotion_and_rollback_survive_a_restart(library, tmp_path):
    for name in ("a", "b", "c"):
        library.approve(name, "test")
    assert library.current == "c"
    data, manifest = library.roll_back("", "worse")
    assert (data, manifest.version, manifest.stage) == (weights(1), "b", "approved")
    again = WeightsLibrary(tmp_path)
    assert again.deployed == ["a", "b"]
    assert again.get("c")[1].stage == "rolled_back"
    assert again.get("b")[1].stage == "approved"
    assert again.get("b")[1].lineage == LINEAGE


def test_rollback_goes_only_to_what_drove_before(library):
    library.approve("a", "test")
    with pytest.raises(UnknownNameError, match=r"unknown earlier weights version ''; valid: \(none\)"):
        library.roll_back("", "")
    library.approve("b", "test")
    with pytest.raises(UnknownNameError, match="unknown earlier weights version 'c'; valid: a"):
        library.roll_back("c", "")


def test_a_candidate_that_nobody_approved_does_not_outlive_the_run(library, tmp_path):
    library.approve("a", "test")
    library.deploy("b")
    library.deploy("c")
    assert (library.current, library.get("c")[1].stage) == ("c", "candidate")
    again = WeightsLibrary(tmp_path)
    assert (again.current, again.deployed, again.forgotten) == ("a", ["a"], ("b", "c"))
    assert again.versions == ["a"]
    assert again.get("a")[0] == weights(0)
    assert WeightsLibrary(tmp_path).forgotten == ()


def test_what_is_approved_after_it_was_deployed_stays(library, tmp_path):
    library.approve("a", "test")
    library.deploy("b")
    library.approve("b", "a person looked at it")
    assert WeightsLibrary(tmp_path).deployed == ["a", "b"]


def test_a_deployed_candidate_that_is_rolled_back_is_rejected_and_goes(library, tmp_path):
    library.approve("a", "test")
    library.deploy("b")
    data, manifest = library.roll_back("", "worse")
    assert (data, manifest.version, manifest.stage) == (weights(0), "a", "approved")
    assert library.get("b")[1].stage == "rejected"
    assert WeightsLibrary(tmp_path).versions == ["a"]


def test_an_unknown_version_is_named_with_the_known(library):
    with pytest.raises(UnknownNameError, match="unknown weights version 'z'; valid: a, b, c"):
        library.get("z")


def test_damaged_weights_are_refused(library, tmp_path):
    path = tmp_path / "b.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(WeightsError, match="weights 'b': sha256"):
        library.approve("b", "test")


def test_versions_that_never_drove_go_when_there_are_too_many(tmp_path):
    library = WeightsLibrary(tmp_path, keep=2)
    library.add(weights(0), make_manifest(weights(0), "first"))
    library.approve("first", "test")
    for i in range(1, 5):
        library.add(weights(i), make_manifest(weights(i), f"v{i}"))
    assert len(library.versions) == 3
    assert {"first", "v4"} <= set(library.versions)


def test_a_reader_beside_the_learner_changes_nothing_and_finds_the_newest_candidate(library, tmp_path):
    library.approve("a", "test")
    os.utime(tmp_path / "b.safetensors", (10**10, 10**10))
    before = sorted(tmp_path.iterdir())
    reader = WeightsLibrary(tmp_path, read_only=True)
    assert (reader.newest(), reader.current, reader.versions) == ("b", "a", ["a", "b", "c"])
    assert sorted(tmp_path.iterdir()) == before
    assert not (WeightsLibrary(tmp_path / "none", read_only=True).newest() or (tmp_path / "none").exists())
