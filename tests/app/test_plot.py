"""``engram plot``: the curve of a learner's goals, what was measured, and a person's help."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from engram.app.cli import main
from engram.app.plot import MEASURED, Goal, goals_of, rates
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.store import ExperienceStore
from tests.learning.transitions import episode

MEASUREMENT = {"episodes": 2, "success": {"successes": 1, "n": 2, "rate": 0.5, "low": 0.1, "high": 0.9}}


@pytest.fixture
def learner(tmp_path):
    store = ExperienceStore(tmp_path / "experience")
    goals = [(False, "v1", []), (True, "v1", ["human:ann", "human:ben", "human:ann"]), (True, "v2", [])]
    for number, (success, version, by_hand) in enumerate(goals):
        steps = [
            replace(step, policy_version=version, instruction="put the red cube in the bin", author=author)
            for step, author in zip(episode(number, success=success), by_hand + [version] * 4, strict=False)
        ]
        store.append(steps)
    store.append([replace(step, instruction="press the red button", author="") for step in episode(3)])
    store.commit()
    store.close()
    return tmp_path


def test_goals_tell_kind_version_outcome_and_help(learner):
    *rest, last = goals_of(learner / "experience")
    helped = Goal(2, "in", "v1", False, 0.75, {"ann": 0.5, "ben": 0.25})
    assert rest == [Goal(1, "in", "v1", False, 0.0), helped, Goal(3, "in", "v2", True, 0.0)]
    assert last.kind == "pressed"


def test_an_episode_that_the_store_let_go_of_meanwhile_counts_for_nobody(learner, monkeypatch):
    """Read without its steps it would be a success of the weights alone: nobody would have helped."""
    known = goals_of(learner / "experience")
    read = ExperienceReader.episode
    monkeypatch.setattr(ExperienceReader, "episode", lambda self, number: [] if number == 2 else read(self, number))
    assert goals_of(learner / "experience") == [goal for goal in known if goal.number != 2]


def test_a_point_is_the_mean_of_the_goals_before_it():
    assert [(one.successes, one.n) for one in rates([False, True, True], 2)] == [(0, 1), (1, 2), (2, 2)]


def test_the_picture_names_what_it_shows(learner, tmp_path, capsys):
    (learner / MEASURED).write_text(json.dumps(MEASUREMENT) + "\n")
    picture, board = tmp_path / "out" / "curve.svg", tmp_path / "board"
    assert main(["plot", str(learner), "--output", str(picture), "--tensorboard", str(board), "--window", "2"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["goals"], told["successes"], told["helped"], told["versions"]) == (4, 2, 1, ["v1", "v2", "base"])
    assert told["helped_by"] == {"ann": 1, "ben": 1}
    ElementTree.parse(picture)
    drawn = picture.read_text()
    assert all(f"<!-- {words} -->" in drawn for words in ("helped steps", "measured, not practised on", "ann", "ben"))
    assert list(board.glob("events.*"))
    assert main(["plot", str(learner), "--output", str(picture), "--tensorboard", str(board)]) == 2
    assert "holds other files; name a new folder" in capsys.readouterr().err
    assert main(["plot", str(learner), "--output", str(picture), "--kind", "pressed"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["goals"] == 1
    assert "helped steps" not in picture.read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--output", "curve.jpg"], "--output: curve.jpg, expected a file that ends with .svg or .png or .pdf"),
        (["--kind", "on"], "--kind: 'on', the goals there are of in or pressed"),
        (["--window", "0"], "--window: 0, expected"),
        (["--output", "/dev/null/curve.svg"], "--output: /dev/null/curve.svg cannot be written: "),
        (["--tensorboard", "/dev/null/board"], "--tensorboard: /dev/null/board cannot be written: "),
    ],
)
def test_what_cannot_be_drawn_is_named(learner, words, told, capsys):
    assert main(["plot", str(learner), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_folder_without_goals_is_named(tmp_path, capsys):
    assert main(["plot", str(tmp_path)]) == 2
    assert "holds no experience of a learner or of a practice" in capsys.readouterr().err
    ExperienceStore(tmp_path / "experience").close()
    assert main(["plot", str(tmp_path)]) == 2
    assert "holds no goal that has ended" in capsys.readouterr().err
    (tmp_path / MEASURED).write_text("{")
    store = ExperienceStore(tmp_path / "experience")
    store.append(episode(0))
    store.commit()
    store.close()
    assert main(["plot", str(tmp_path), "--output", str(tmp_path / "x.svg")]) == 2
    assert f"{MEASURED}: cannot be read" in capsys.readouterr().err
