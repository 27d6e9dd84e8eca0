"""Versions on disk: which drove, promotion, rollback, damage, kill -9."""

import os
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save

from engram.core.errors import EngramError, StoreError, StoreLockedError, UnknownNameError, WeightsError
from engram.core.types import Lineage
from engram.learning.experience.database import Database
from engram.learning.weights.library import FILE, WeightsLibrary
from engram.learning.weights.manifest import make_manifest

LINEAGE = Lineage("r", "a", "n", "base")


def weights(value: float) -> bytes:
    return save({"w": np.full(3, 1 + value, np.float32)})


@pytest.fixture
def library(tmp_path):
    made = WeightsLibrary(tmp_path)
    for i, name in enumerate(("a", "b", "c")):
        made.add(weights(i), make_manifest(weights(i), name, lineage=LINEAGE))
    yield made
    made.close()


@pytest.fixture
def again(library, tmp_path):
    """Close the library and open it as the next run does."""
    opened = [library]

    def reopen():
        opened[-1].close()
        opened.append(WeightsLibrary(tmp_path))
        return opened[-1]

    yield reopen
    opened[-1].close()


def test_promotion_and_rollback_survive_a_restart(library, again):
    for name in ("a", "b", "c"):
        library.approve(name, "test")
    assert library.current == "c"
    data, manifest = library.roll_back("", "worse")
    assert (data, manifest.version, manifest.stage) == (weights(1), "b", "approved")
    later = again()
    assert later.deployed == ["a", "b"]
    assert later.get("c")[1].stage == "rolled_back"
    assert later.get("b")[1].stage == "approved"
    assert later.get("b")[1].lineage == LINEAGE


@pytest.mark.parametrize("after", ["wal_checkpoint", "unlink"])
def test_a_change_that_is_made_is_no_failure_whatever_the_disk_refuses_after_it(library, tmp_path, monkeypatch, after):
    """Else nobody would announce what the library says from then on."""
    library.approve("a", "test")
    library.approve("b", "test")
    (tmp_path / "nobodys.safetensors").write_bytes(b"")
    execute = Database.execute

    def refuse(database, statement, values=()):
        if after in statement:
            raise StoreError("database or disk is full")
        return execute(database, statement, values)

    with monkeypatch.context() as disk:
        disk.setattr(Database, "execute", refuse)
        if after == "unlink":
            disk.setattr(type(tmp_path), "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError("read-only")))
        assert library.roll_back("", "worse")[1].version == "a"
    assert library.deployed == ["a"]
    library.approve("c", "test")
    assert not (tmp_path / "nobodys.safetensors").exists()


def test_rollback_goes_only_to_what_drove_before(library):
    library.approve("a", "test")
    with pytest.raises(UnknownNameError, match=r"unknown earlier weights version ''; valid: \(none\)"):
        library.roll_back("", "")
    library.approve("b", "test")
    with pytest.raises(UnknownNameError, match="unknown earlier weights version 'c'; valid: a"):
        library.roll_back("c", "")


def test_a_candidate_that_nobody_approved_does_not_outlive_the_run(library, again, tmp_path):
    library.approve("a", "test")
    library.deploy("b")
    library.deploy("c")
    assert (library.current, library.get("c")[1].stage) == ("c", "candidate")
    later = again()
    assert (later.current, later.deployed, later.forgotten) == ("a", ["a"], ("b", "c"))
    assert later.versions == ["a"]
    assert later.get("a")[0] == weights(0)
    assert [path.stem for path in tmp_path.glob("*.safetensors")] == [later.get("a")[1].sha256]
    assert again().forgotten == ()


def test_what_is_approved_after_it_was_deployed_stays(library, again):
    library.approve("a", "test")
    library.deploy("b")
    library.approve("b", "a person looked at it")
    assert again().deployed == ["a", "b"]


def test_a_deployed_candidate_that_is_rolled_back_is_rejected_and_stays_so(library, again):
    library.approve("a", "test")
    library.deploy("b")
    data, manifest = library.roll_back("", "worse")
    assert (data, manifest.version, manifest.stage) == (weights(0), "a", "approved")
    later = again()
    assert later.versions == ["a", "b"] and later.stage("b") == "rejected"


def test_what_became_of_a_candidate_is_kept_with_the_reason(library, again):
    library.approve("a", "test")
    marked = library.mark("b", "rejected", "the gate: worse")
    assert (marked.stage, marked.metrics["because"]) == ("rejected", "the gate: worse")
    assert library.newest() == "c"
    later = again()
    assert later.manifest("b") == marked and list(later.manifests()) == ["a", "b"]
    later.approve("b", "a person wants it")
    assert later.manifest("b").metrics == {"approved_because": "a person wants it"}


def test_an_unknown_version_is_named_with_the_known(library):
    with pytest.raises(UnknownNameError, match="unknown weights version 'z'; valid: a, b, c"):
        library.get("z")


@pytest.mark.parametrize("name", ["", "../up", ".hidden"])
def test_a_version_that_is_no_file_name_is_refused(name, library):
    with pytest.raises(WeightsError, match="not a file name"):
        library.add(weights(9), make_manifest(weights(9), name))


def test_damaged_weights_are_refused_and_can_be_left(library, tmp_path):
    library.approve("a", "test")
    library.approve("b", "test")
    path = tmp_path / f"{library.get('b')[1].sha256}.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(WeightsError, match="weights 'b': sha256"):
        library.approve("b", "test")
    assert library.roll_back("", "damaged")[0] == weights(0)


def test_a_damaged_manifest_is_named_and_its_version_can_be_left(library, again, tmp_path):
    library.approve("a", "test")
    library.approve("b", "test")
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("UPDATE versions SET manifest = replace(manifest, 'approved', 'retired') WHERE version = 'b'")
    with pytest.raises(WeightsError, match="manifest of 'b' cannot be read: its digest does not fit"):
        library.get("b")
    assert library.stage("b") == "unreadable"
    later = again()
    assert later.versions == ["a", "b"]
    assert later.roll_back("", "damaged")[1].version == later.current == "a"


def test_versions_that_never_drove_go_when_there_are_too_many(tmp_path):
    library = WeightsLibrary(tmp_path, keep=2)
    library.add(weights(0), make_manifest(weights(0), "first"))
    library.approve("first", "test")
    for i in range(1, 5):
        library.add(weights(i), make_manifest(weights(i), f"v{i}"))
    assert library.versions == ["first", "v3", "v4"]
    assert len(list(tmp_path.glob("*.safetensors"))) == 3


def test_of_what_drove_long_ago_the_manifest_stays_and_the_weights_go(tmp_path, request):
    library = WeightsLibrary(tmp_path, keep=3)
    request.addfinalizer(library.close)
    library.spared = {"v2"}
    for i in range(12):
        library.add(weights(i), make_manifest(weights(i), f"v{i}"))
        library.approve(f"v{i}", f"reason {i}")
    assert library.versions == [f"v{i}" for i in range(12)]
    assert library.deployed == library.kept == ["v0", "v2", "v8", "v9", "v10", "v11"]
    assert len(list(tmp_path.glob("*.safetensors"))) == 6
    old = library.manifest("v5")
    assert (old.stage, old.metrics["approved_because"]) == ("retired", "reason 5")
    with pytest.raises(WeightsError, match="weights 'v5': drove long ago and are not kept; valid: v0, v2, v8, v9"):
        library.get("v5")
    with pytest.raises(WeightsError, match="not kept"):
        library.approve("v5", "again")
    with pytest.raises(UnknownNameError, match="unknown earlier weights version 'v5'; valid: v0, v10, v2, v8, v9"):
        library.roll_back("v5", "")
    for i in range(12, 20):  # none of them displaces what drove
        library.add(weights(i), make_manifest(weights(i), f"v{i}"))
    assert library.kept == ["v0", "v2", "v8", "v9", "v10", "v11", "v17", "v18", "v19"]
    assert library.roll_back("v2", "worse")[0] == weights(2)


def test_what_was_approved_stays_however_many_candidates_drive_after_it(tmp_path):
    library = WeightsLibrary(tmp_path, keep=2)
    for i in range(9):
        library.add(weights(i), make_manifest(weights(i), f"v{i}"))
        library.deploy(f"v{i}") if i > 1 else library.approve(f"v{i}", "test")
    assert library.deployed == ["v0", "v1", "v6", "v7", "v8"]
    library.close()
    again = WeightsLibrary(tmp_path, keep=2)  # the candidates go
    assert (again.deployed, again.get("v1")[0]) == (["v0", "v1"], weights(1))
    again.close()


def test_what_was_deployed_is_looked_at_by_so_many_statements_however_much_it_is(tmp_path, monkeypatch, request):
    library, counts = WeightsLibrary(tmp_path, keep=2), []
    request.addfinalizer(library.close)
    select = WeightsLibrary._select

    def counted(self, *statement):
        counts[-1] += 1
        return select(self, *statement)

    monkeypatch.setattr(WeightsLibrary, "_select", counted)
    for i in range(30):
        counts.append(0)
        library.add(weights(i), make_manifest(weights(i), f"v{i}"))
        library.approve(f"v{i}", "test")
    assert counts[-1] == counts[10]


def test_versions_with_the_same_weights_share_a_file_that_goes_with_the_last(tmp_path):
    library = WeightsLibrary(tmp_path, keep=1)
    for name in ("one", "two"):
        library.add(weights(0), make_manifest(weights(0), name))
    assert (library.versions, library.get("two")[0]) == (["two"], weights(0))


def test_a_reader_beside_the_learner_changes_nothing_and_finds_the_newest_candidate(library, tmp_path):
    library.approve("a", "test")
    library.add(weights(1), library.get("b")[1])  # again: it does not become the newest
    before = sorted(tmp_path.iterdir())
    reader = WeightsLibrary(tmp_path, read_only=True)
    assert (reader.newest(), reader.current, reader.versions) == ("c", "a", ["a", "b", "c"])
    with pytest.raises(StoreError, match="opened to be read only"):
        reader.approve("b", "nobody asked")
    assert sorted(tmp_path.iterdir()) == before
    assert not (WeightsLibrary(tmp_path / "none", read_only=True).newest() or (tmp_path / "none").exists())
    with pytest.raises(StoreLockedError):
        WeightsLibrary(tmp_path)


def test_a_refusing_disk_leaves_what_was(library, again, monkeypatch):
    library.approve("a", "test")

    def refuse(database):
        raise StoreError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "commit", refuse)
        with pytest.raises(StoreError, match="disk full"):
            library.approve("b", "test")
    assert (library.current, library.stage("a"), library.stage("b")) == ("a", "approved", "candidate")
    library.approve("c", "test")
    assert again().deployed == ["a", "c"]


def seen(folder) -> tuple:
    """Return everything that a reader is told."""
    reader = WeightsLibrary(folder, read_only=True)
    return reader.deployed, {version: reader.manifest(version) for version in reader.versions}


def test_no_flipped_bit_is_another_stage_or_another_version_that_drives(library, tmp_path):
    library.approve("a", "test")
    library.approve("b", "test")
    library.roll_back("", "worse")
    library.close()
    file = tmp_path / FILE
    true, whole, rng, silent = seen(tmp_path), file.read_bytes(), np.random.default_rng(0), 0
    for place in rng.choice(len(whole), 400, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        try:
            silent += seen(tmp_path) != true
        except EngramError:
            continue
    assert silent == 0


CHANGES = """
import sys
from pathlib import Path
from tests.learning.test_weights_library import weights
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest
library = WeightsLibrary(Path(sys.argv[1]))
print("open", flush=True)
for number in range(10**6):
    data = weights(number)
    library.add(data, make_manifest(data, f"v{number}"))
    library.approve(f"v{number}", "test")
    if number % 3 == 2:
        library.roll_back("", "test")
"""


def test_a_killed_writer_leaves_every_change_whole_or_undone(tmp_path):
    rng, drove = np.random.default_rng(1), set()
    for number in range(8):
        folder = tmp_path / str(number)
        writer = subprocess.Popen([sys.executable, "-c", CHANGES, str(folder)], stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"open\n"
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(float(rng.uniform(0.05, 0.4)))
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        library = WeightsLibrary(folder)
        stages = {version: library.stage(version) for version in library.kept}
        for version in library.kept:
            library.get(version)
        deployed = library.deployed
        if deployed:
            drove.add(library.current)
            assert [v for v, stage in stages.items() if stage == "approved"] == [library.current]
        assert {v for v, stage in stages.items() if stage in ("approved", "retired")} == set(deployed)
        assert len(list(folder.glob("*.safetensors"))) == len(stages)
        library.close()
    assert len(drove) > 1  # they were killed at different changes
