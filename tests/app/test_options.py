"""Options that would change nothing are refused."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from engram.app.options import chosen, with_home, writable
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
