"""Options that would change nothing are refused."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from engram.app.operate import DoConfig
from engram.app.options import check_asking, chosen, new_folder, with_home, writable
from engram.app.teleop import TeleopConfig
from engram.core.errors import InvalidInputError


@pytest.mark.parametrize("device", ["keyboard", "gamepad"])
def test_a_device_without_motors_takes_none_of_their_settings(device):
    with pytest.raises(InvalidInputError, match=rf"TeleopConfig\.unit: rad: would change nothing: a {device} has no"):
        TeleopConfig(device, unit="rad")
    assert chosen(TeleopConfig('{"type": "so101_leader"}', unit="rad"), ("unit", "align_rad")) == ["unit"]


@dataclass(frozen=True)
class Places:
    store: Path = Path("~/usual")
    folder: str = ""
    parts: tuple[str, ...] = ()


def test_a_tilde_that_was_given_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert with_home(Places(Path("~/s"), "~", ("~/a", "b/~", "~"))) == Places(
        Path("/home/me/s"), "/home/me", ("/home/me/a", "b/~", "/home/me")
    )
    assert with_home(Places(folder="~what is it")) == Places(folder="~what is it")  # words, and an option as by default
    with pytest.raises(InvalidInputError, match="~nosuchuser/x: "):
        with_home(Places(Path("~nosuchuser/x")))


def test_a_file_is_found_to_be_writable_without_being_written(tmp_path):
    there = tmp_path / "there.json"
    there.write_text("old")
    assert writable("X.output", there) == there and there.read_text() == "old"
    new = tmp_path / "new" / "report.json"
    assert writable("X.output", str(new)) == new and not new.exists()
    assert writable("X.output", "") is None and writable("X.output", None) is None
    for output, told in ((tmp_path, "is a folder, expected a file"), (there / "x.json", "cannot be written: ")):
        with pytest.raises(InvalidInputError, match=rf"X\.output: {output} {told}"):
            writable("X.output", output)


def test_a_file_is_not_written_into_what_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "read").mkdir()
    with pytest.raises(
        InvalidInputError, match=rf"X\.output '{tmp_path}/read/new/x.json': lies in the input '.*/read'"
    ):
        writable("X.output", "~/read/new/x.json", {"the input": tmp_path / "read"})
    assert not any((tmp_path / "read").iterdir())
    assert writable("X.output", "~/ready.json", {"the input": tmp_path / "read"}) == tmp_path / "ready.json"


def test_a_new_folder_may_hold_what_is_gone_on_with_and_nothing_else(tmp_path):
    folder = tmp_path / "deep" / "new"
    assert new_folder("X.output", folder) == folder and folder.is_dir()
    (folder / "empty").mkdir()
    (folder / "goals").write_text("")
    assert new_folder("X.output", folder, ("goals",)) == folder
    with pytest.raises(InvalidInputError, match=rf"X\.output: {folder} holds other files \(goals\); name a new folder"):
        new_folder("X.output", folder)
    with pytest.raises(InvalidInputError, match=r"X\.output: .*goals/x cannot be written: Not a directory"):
        new_folder("X.output", folder / "goals" / "x")


@pytest.mark.parametrize("namespace", ["", "/", "r1", "/r1", "fleet/r1", "_a/b_2"])
def test_a_namespace_of_ros_may_be_asked(namespace):
    check_asking(DoConfig("reach", namespace=namespace))


@pytest.mark.parametrize("namespace", ["a-b", "1r", "r1/", "a//b", "r 1", "r1\n", "\u00e4", "r" * 101])
def test_what_cannot_be_a_namespace_is_asked_of_nobody(namespace):
    with pytest.raises(
        InvalidInputError, match=r"DoConfig\.namespace: '.*', expected at most 100 letters, digits and _"
    ):
        check_asking(DoConfig("reach", namespace=namespace))


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), 0.0, -1.0])
def test_nobody_is_asked_for_a_time_that_does_not_end_or_has_ended(timeout_s):
    with pytest.raises(
        InvalidInputError, match=rf"DoConfig\.timeout_s: {timeout_s}, expected a finite number of seconds"
    ):
        check_asking(DoConfig("reach", timeout_s=timeout_s))


def test_words_that_are_no_utf_8_are_refused():
    check_asking(DoConfig("put the w\u00fcrfel away"))
    with pytest.raises(InvalidInputError, match=r"DoConfig\.instruction: 'w\\udcfcrfel', expected text in UTF-8"):
        check_asking(DoConfig("w\udcfcrfel"))  # as Python reads the latin-1 of a shell
