"""What a learner was taught since it began is guarded as what its checkpoint was trained on is."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from engram.core.errors import InvalidInputError, StoreError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionSource
from engram.learning.experience.reader import experience_file
from engram.learning.experience.store import ExperienceStore
from engram.learning.practised import Findings, FoundCorrection, Practised
from engram.learning.weights.gate_verdict import GateVerdict, write_verdict
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest
from engram.learning.workspace import EXPERIENCE, PRACTICE
from engram.policies.checkpoint import CARD
from engram.runtime.factories import policy_folder
from engram.sim.tasks import SUITES, TASKS
from engram.validation.gate import PROMOTE, Gate
from engram.validation.of_learner import GATE, contender, tasks_of, with_taught
from engram.validation.taught import TAUGHT, kept_taught, taught_tasks
from engram.validation.trials import environment_digest
from engram.validation.validate import proof_in
from tests.learning.transitions import LINEAGE, OTHER, OWN, episode

BASE = policy_folder("base")
TOLD = {"on": "turned", "worst_cases": {}}


def ended(learner: Path, source: ActionSource = OWN, author: str = "v0", **goals: bool) -> None:
    """Keep that the robot was asked for these words, with _ for spaces, and whether that went well.

    The learner's weights are of LINEAGE; ``source`` proposed the actions, and the last one is by ``author``.
    """
    data, library = save({"w": np.ones(3, np.float32)}), WeightsLibrary(learner / "weights")
    library.add(data, make_manifest(data, "v0", lineage=LINEAGE))
    library.close()
    store = ExperienceStore(learner / EXPERIENCE)
    for number, (words, success) in enumerate(goals.items()):
        made = episode(number, success=success, source=source)
        said = [replace(step, task="", instruction=words.replace("_", " "), author="v0") for step in made]
        store.append([*said[:-1], replace(said[-1], author=author)])
    store.commit()
    store.close()


def checkpoint(folder: Path, *tasks: str) -> Path:
    """Return ``base`` with a card that names ``tasks``."""
    shutil.copytree(BASE, folder, copy_function=shutil.copyfile)
    (folder / CARD).write_text(json.dumps({"tasks": tasks}))
    return folder


def test_goals_that_went_well_and_what_practice_found_are_what_a_learner_was_taught(tmp_path):
    assert taught_tasks(tmp_path, tmp_path / GATE) == ()
    ended(
        tmp_path,
        touch_the_shell_that_hides_the_ball=True,
        touch_the_same_colour_in_every_trial=False,
        open_the_drawer=True,
        sing_a_song=True,
    )
    assert taught_tasks(tmp_path, tmp_path / GATE) == ("shell_touch", "open_drawer")
    found = Findings(1, (FoundCorrection("stop_cube:delay=20", MotionCorrection(), ()),))
    (tmp_path / PRACTICE).mkdir()
    Practised(tmp_path / PRACTICE).tell(found)
    assert taught_tasks(tmp_path, tmp_path / GATE) == ("shell_touch", "open_drawer", "stop_cube")


@pytest.mark.parametrize(
    ("source", "author"),
    [
        (OWN, "human:ann"),
        (ActionSource("spatial", OTHER.id), "spatial"),
        (ActionSource(), ""),
        (replace(OWN, ablation="no_memory"), "v0"),
    ],
)
def test_what_a_person_or_another_policy_did_is_not_what_a_learner_was_taught(tmp_path, source, author):
    ended(tmp_path, source, author, open_the_drawer=True)
    assert taught_tasks(tmp_path, tmp_path / GATE) == ()


def test_a_suite_of_tasks_and_a_goal_of_one_of_them_are_each_named_once(tmp_path):
    ended(tmp_path, reach_the_red_cube=True, open_the_drawer=True)
    assert with_taught(("tabletop", "reach"), tmp_path) == tuple(dict.fromkeys((*SUITES["tabletop"], "open_drawer")))


def test_a_note_with_options_is_of_the_task_without_them(tmp_path):
    (tmp_path / TAUGHT).write_text('{"tasks": ["shell_touch:delay=20", "shell_touch"]}')
    assert kept_taught(tmp_path) == ("shell_touch",)


def test_what_was_taught_and_cannot_be_tried_is_told_and_the_rest_is_judged(tmp_path):
    noted = ["shell_touch", "old_task", 7, "gone_module:Wave"]
    (tmp_path / GATE).mkdir()
    (tmp_path / GATE / TAUGHT).write_text(json.dumps({"tasks": noted}))
    ended(tmp_path, open_the_drawer=True)
    told = []
    assert with_taught(("reach",), tmp_path, told.append) == ("reach", "shell_touch", "open_drawer")
    offenders = ("no task 'old_task' any more", "7 is no name", "'gone_module:Wave'")
    for error, offender in zip(told, offenders, strict=True):
        assert offender in str(error) and TAUGHT in str(error) and "take it out of the file" in str(error)
    kept = json.loads((tmp_path / GATE / TAUGHT).read_text())["tasks"]
    assert kept == [*noted, "open_drawer"]  # nothing is lost, and no proof may leave it out
    with pytest.raises(InvalidInputError, match="no task 'old_task' any more"):  # whoever can mend it
        with_taught(("reach",), tmp_path)


def test_what_was_taught_counts_beside_the_card_also_when_its_episodes_are_gone(tmp_path):
    ended(tmp_path, touch_the_shell_that_hides_the_ball=True)
    card = tasks_of(contender(BASE))
    assert with_taught(card, tmp_path) == (*card, "shell_touch")
    experience_file(tmp_path / EXPERIENCE).unlink()
    assert with_taught(card, tmp_path) == (*card, "shell_touch")


def test_a_task_of_ones_own_is_known_by_its_words(tmp_path, monkeypatch):
    (tmp_path / "waving.py").write_text(
        "from engram.sim.tasks.reach import Reach\n\n"
        "class Wave(Reach):\n    instructions = ('wave at the {color} cube',)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ended(tmp_path, wave_at_the_red_cube=True)
    assert with_taught(("reach",), tmp_path) == ("reach",)
    assert with_taught(("waving:Wave",), tmp_path) == ("waving:Wave",)
    assert with_taught(("reach",), tmp_path) == ("reach", "waving:Wave")  # also when nobody names it any more


def test_a_test_that_left_out_what_was_taught_proves_nothing(tmp_path):
    card = tasks_of(contender(BASE))

    def judged(tasks):
        report = Gate(tasks).report() | TOLD
        write_verdict(
            tmp_path / "verdicts", GateVerdict("new", "old", environment_digest("turned"), PROMOTE, "fine", report)
        )
        return proof_in(tmp_path, "base")("new", "old")

    assert judged(card) == "the gate: fine"
    (tmp_path / TAUGHT).write_text('{"tasks": ["shell_touch", "reach"]}')
    with pytest.raises(WeightsError, match=r"too weak: shell_touch was taught since .*; validate it again"):
        judged(card)
    assert judged((*card, "shell_touch")) == "the gate: fine"
    (tmp_path / TAUGHT).write_text('{"tasks": ["old_task"]}')
    with pytest.raises(WeightsError, match=rf"proves nothing: .*{TAUGHT}: there is no task 'old_task' any more"):
        judged(card)
    (tmp_path / TAUGHT).write_text("{")
    with pytest.raises(StoreError, match=f"{TAUGHT}: cannot be read"):
        kept_taught(tmp_path)
    with pytest.raises(WeightsError, match="proves nothing"):
        judged(card)


def test_a_card_that_names_a_task_that_no_longer_exists_is_refused_by_name(tmp_path):
    mine = checkpoint(tmp_path / "mine", "reach", "old_task:distractors=2", "my_module:Mine")
    with pytest.raises(InvalidInputError, match=r"card\.json: there is no task 'old_task' any more.*valid: reach, "):
        tasks_of(contender(mine))
    report = Gate(tuple(TASKS)).report() | TOLD
    write_verdict(
        tmp_path / "verdicts", GateVerdict("new", "old", environment_digest("turned"), PROMOTE, "fine", report)
    )
    with pytest.raises(WeightsError, match=r"proves nothing: .*'old_task'"):
        proof_in(tmp_path, str(mine))("new", "old")
