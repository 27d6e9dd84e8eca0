"""Parts by name: shipped ones, and those that somebody writes beside where the command is run."""

import sys

import pytest

from engram.core.contracts import Detector
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.registry import is_spec, load_object, resolve, resolve_class, split_options

OWN = """
from engram.core.contracts import Detector
import json

class Blind(Detector):
    def __init__(self, name="nothing"):
        self.name = name
    def detect(self, frame):
        return None

def make_blind() -> Blind:
    return Blind("made")

def make_silently():
    raise SystemExit("called without being declared")

READY = Blind("ready")
SIZE = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module `own_parts` in the current folder, which is on no search path."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("spec", "name"), [("own_parts:Blind", "nothing"), ("own_parts:make_blind", "made"), ("own_parts:READY", "ready")]
)
def test_a_class_a_function_and_an_instance_beside_the_command_all_name_a_part(own, spec, name):
    assert resolve("detector", spec, {}, Detector).name == name


def test_arguments_reach_what_makes_the_part(own):
    assert resolve("detector", "own_parts:Blind", {}, Detector, "mine").name == "mine"


def test_a_shipped_name_wins_and_is_made_only_when_it_is_asked_for(own):
    made = []
    known = {"one": lambda: made.append("one") or load_object("own_parts:READY"), "two": lambda: made.append("two")}
    assert resolve("detector", "one", known, Detector).name == "ready"
    assert made == ["one"]


def test_the_current_folder_hides_no_installed_package(own, tmp_path):
    (tmp_path / "yaml.py").write_text("HIDDEN = True")
    sys.modules.pop("yaml", None)
    assert load_object("yaml:safe_load").__module__ == "yaml"


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("tow", UnknownNameError, r"unknown detector 'tow'; did you mean 'two'\? valid: package.module:attribute, two"),
        ("own_parts:Blnd", UnknownNameError, r"^detector .*'Blnd'; did you mean 'Blind'\? valid: Blind, READY, make_b"),
        (
            "own_part:Blind",
            InvalidInputError,
            r"^detector 'own_part:Blind': no module 'own_part' on PYTHONPATH or in /",
        ),
        ("own_parts:SIZE", InvalidInputError, r"'own_parts:SIZE' is of type int, expected a Detector"),
        ("own_parts:", InvalidInputError, r"'own_parts:': expected 'package.module:attribute'"),
        ("pathlib:Path", InvalidInputError, r"'pathlib:Path' is the class Path, expected a Detector"),
        ("os:abort", InvalidInputError, r"'os:abort' is of type builtin_function_or_method, expected a Detector"),
        ("own_parts:make_silently", InvalidInputError, r"function make_silently, .* annotated to return one \(-> Det"),
    ],
)
def test_an_error_names_the_offender_and_what_would_be_valid(own, spec, error, words):
    with pytest.raises(error, match=words):
        resolve("detector", spec, {"two": lambda: None}, Detector)


def test_what_a_module_of_ones_own_lacks_is_named(own, tmp_path):
    (tmp_path / "broken_parts.py").write_text("import no_such_library")
    with pytest.raises(InvalidInputError, match="broken_parts imports what is not there: No module named 'no_such_lib"):
        load_object("broken_parts:Thing")


def test_a_class_is_wanted_where_parts_are_made_later(own):
    assert resolve_class("detector", "own_parts:Blind", {}, Detector).__name__ == "Blind"
    with pytest.raises(InvalidInputError, match="'own_parts:READY' is of type Blind, expected a subclass of Detector"):
        resolve_class("detector", "own_parts:READY", {}, Detector)


def test_options_are_told_from_an_attribute():
    assert split_options("shell_touch:delay=20,first_color=1") == ("shell_touch", "delay=20,first_color=1")
    assert split_options("own.parts:Task") == ("own.parts:Task", "")
    assert split_options("own.parts:Task:delay=3") == ("own.parts:Task", "delay=3")
    assert is_spec("own.parts:Task")
    assert not is_spec("shell_touch:delay=20")
    assert not is_spec("reach")
