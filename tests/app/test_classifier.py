"""``engram classifier``: from stored goals to a folder that judges, and what it passes over."""

import json
import os
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from engram.app import cli
from engram.app.classifier import FIRST_SEED, GOALS, oracle_goals
from engram.core.errors import InvalidInputError, StoreError
from engram.core.lock import WriterLock
from engram.core.types import CANNOT_TELL, CORRECTION, NOBODY, UNJUDGED, ActionSource
from engram.learning.experience.store import ExperienceStore
from engram.learning.rewards import success_classifier
from engram.learning.rewards.clips import ClipsConfig
from engram.learning.rewards.labelled_episodes import labelled_episodes
from engram.learning.rewards.lerobot.modeling_engram_success import EngramSuccessRewardModel
from engram.learning.rewards.success_classifier import ClassifierConfig, SuccessClassifier
from engram.policies.loading import load_policy
from engram.runtime.factories import policy_folder
from tests.learning.transitions import episode

WORDS = "clean the table"


@pytest.fixture(scope="module")
def base():
    return load_policy("base")


def goal(lineage: str, number: int, success: bool, words=WORDS, source="verdict", steps=14):
    """Return a goal as a robot records it: bright at its end if it was reached."""
    rng, out = np.random.default_rng(number), []
    for step, one in enumerate(episode(number, steps, success=success, truncated=not success, task="")):
        light = 120 if success and step >= steps - 4 else 0
        images = {name: rng.integers(light, 130 + light, (128, 128, 3), np.uint8) for name in ("front", "wrist")}
        by = ActionSource("base", lineage) if lineage else ActionSource(NOBODY)
        out.append(replace(one, instruction=words, images=images, reward_source=source, source=by))
    return out


def stored(folder, goals):
    store = ExperienceStore(folder)
    store.append([replace(one, sequence=at) for at, one in enumerate((one for each in goals for one in each), 1)])
    store.commit()
    store.close()


def test_a_classifier_is_learnt_from_judged_goals_and_says_how_right_it_is(tmp_path, base, capsys, monkeypatch):
    monkeypatch.setattr(success_classifier, "ClassifierConfig", partial(ClassifierConfig, members=2, updates=60))
    own = base.lineage.id
    goals = [goal(own, number, number % 2 == 0) for number in range(12)]
    goals += [goal("other", 12, True), goal(own, 13, True, source="oracle"), goal(own, 14, True, words="wave")]
    goals[0] = [replace(one, source=replace(one.source, ablation=CORRECTION)) for one in goals[0]]  # seen all the same
    stored(tmp_path / "experience", goals)
    words = ["classifier", str(tmp_path / "out"), "--experience", str(tmp_path / "experience"), "--words", "CLEAN *"]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    report = json.loads(said.out.splitlines()[-1])
    assert (report["reached"], report["missed"]) == (6, 6)
    assert report["figures"]["right"]["rate"] > 0.8
    assert "1 goals passed over: other lineage" in said.err
    assert "1 goals passed over: the simulator ended it before its success was seen" in said.err
    learnt = SuccessClassifier.load(tmp_path / "out")
    encoder, seen = labelled_episodes(tmp_path / "experience", base, "clean*")
    assert learnt.encoder == encoder and learnt.forms == {WORDS}
    ends = {one.success: learnt.judge(one.features)[-1, 0] for one in seen}
    assert ends[True] > 0.8 > 0.2 > ends[False]


def test_clips_are_made_of_goals_that_were_reached_and_the_seed_says_which(tmp_path, base):
    words = ["touch the red cup in the dark", "touch the blue cup in the dark"]
    goals = [goal(base.lineage.id, number, number < 2, words=words[number % 2]) for number in range(4)]
    stored(tmp_path, goals)
    _, seen = labelled_episodes(tmp_path, base, clips=ClipsConfig(1, 1), seed=3)
    for one in seen:
        assert [(clip.wanted, clip.late) for clip in one.clips] == (
            [(True, False), (True, False), (True, True), (False, False)] if one.success else []
        )
        for clip in one.clips[:3]:  # "base" remembers nothing: a step is what it shows
            np.testing.assert_allclose(clip.features, one.features[clip.shown], atol=1e-5)
        for clip in one.clips[3:]:
            assert np.abs(clip.features - one.features).mean() > 1e-3
    _, again = labelled_episodes(tmp_path, base, clips=ClipsConfig(1, 1), seed=3)
    _, others = labelled_episodes(tmp_path, base, clips=ClipsConfig(1, 1), seed=4)
    orders = [[clip.shown.tolist() for one in each for clip in one.clips] for each in (seen, again, others)]
    assert orders[0] == orders[1] != orders[2]
    _, without = labelled_episodes(tmp_path, base)
    assert not any(one.clips for one in without)


def test_what_was_learnt_is_a_reward_model_of_lerobot_s_if_that_is_asked_for(tmp_path, base, capsys, monkeypatch):
    monkeypatch.setattr(success_classifier, "ClassifierConfig", partial(ClassifierConfig, members=1, updates=20))
    stored(tmp_path / "experience", [goal(base.lineage.id, number, number % 2 == 0) for number in range(8)])
    words = ["classifier", str(tmp_path / "out"), "--experience", str(tmp_path / "experience"), "--clips", "0"]
    assert cli.main([*words, "--lerobot", str(tmp_path / "reward")]) == 0
    model = EngramSuccessRewardModel.from_pretrained(tmp_path / "reward", strict=True)
    learnt = SuccessClassifier.load(tmp_path / "out")
    assert model.config.forms == (WORDS,)
    for name, tensor in learnt.network.state_dict().items():
        assert model.ensemble.state_dict()[name].equal(tensor)
    words[1] = str(tmp_path / "other")
    assert cli.main([*words, "--lerobot", str(tmp_path / "no"), "--policy", "engram"]) == 2
    assert "has a memory of its episode" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_where_nothing_was_told_the_table_says_so(tmp_path, base, capsys, monkeypatch):
    monkeypatch.setattr(success_classifier, "ClassifierConfig", partial(ClassifierConfig, members=1, updates=1))
    monkeypatch.setattr(success_classifier, "verdict_on", lambda _: CANNOT_TELL)
    stored(tmp_path / "experience", [goal(base.lineage.id, number, number % 2 == 0) for number in range(12)])
    assert cli.main(["classifier", str(tmp_path / "out"), "--experience", str(tmp_path / "experience")]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["figures"]["right"] is None
    (line,) = [line for line in said.err.splitlines() if "right" in line]
    assert "nothing was told" in line and "0.000" not in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "--experience: give either"),
        (["--experience", "nowhere", "--oracle-tasks", "stack"], "--experience: give either"),
        (["--experience", "nowhere"], "no experience is stored there"),
        (["--experience", "nowhere", "--episodes", "500"], "--episodes: 500: would change nothing"),
        (["--experience", "nowhere", "--on", "worn"], "--on: ('worn',): would change nothing"),
        (["--oracle-tasks", "dance"], "dance"),
        (["--oracle-tasks", "stack", "--on", "mars"], "unknown gap 'mars'"),
        (["--oracle-tasks", "stack", "--episodes", "0"], "--episodes: 0"),
        (["--oracle-tasks", "stack", "--clips", "-1"], "--clips: -1"),
        (["--oracle-tasks", "stack", "--other-words", "-1"], "--other-words: -1"),
    ],
)
def test_what_cannot_be_learnt_is_refused_by_name(tmp_path, capsys, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["classifier", "out", *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "experience").exists()


def test_simulated_goals_of_another_task_are_not_taken_for_those_that_were_asked_for(tmp_path, base):
    about = {"policy": base.version, "tasks": ["stack"], "on": ["none"], "episodes": 2, "first_seed": FIRST_SEED}
    (tmp_path / GOALS).write_text(json.dumps(about))
    oracle_goals(base, ("stack",), ("none",), 2, tmp_path)
    with pytest.raises(InvalidInputError, match="holds other goals"):
        oracle_goals(base, ("reach",), ("none",), 2, tmp_path)
    (tmp_path / GOALS).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        oracle_goals(base, ("stack",), ("none",), 2, tmp_path)


def test_simulated_goals_of_the_same_weights_with_other_settings_are_others(tmp_path, base):
    about = {"policy": base.version, "tasks": ["stack"], "on": ["none"], "episodes": 2, "first_seed": FIRST_SEED}
    (tmp_path / GOALS).write_text(json.dumps(about | {"policy_files": "one", "commit": "abc"}))
    assert oracle_goals(base, ("stack",), ("none",), 2, tmp_path, policy_files="one") == "abc"
    with pytest.raises(InvalidInputError, match="holds other goals"):
        oracle_goals(base, ("stack",), ("none",), 2, tmp_path, policy_files="two")
    (tmp_path / GOALS).write_text(json.dumps(about))  # of an earlier version
    assert oracle_goals(base, ("stack",), ("none",), 2, tmp_path, policy_files="two") == ""


def test_nothing_that_lies_in_the_folders_for_what_is_learnt_is_replaced(tmp_path, capsys):
    shutil.copytree(policy_folder("base"), mine := tmp_path / "mine")
    before = {path.name: path.read_bytes() for path in mine.iterdir()}
    learning = ["--experience", str(tmp_path / "experience"), "--clips", "0"]
    for words in ([str(tmp_path / "out"), "--lerobot", str(mine)], [str(mine)]):
        assert cli.main(["classifier", *words, *learning]) == 2
        option = "--lerobot" if len(words) > 1 else "--output"
        assert f"{option}: {mine} holds other files (card.json, config.json" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == before


def test_simulated_goals_of_a_command_that_was_interrupted_are_gone_on_with(tmp_path, base, capsys, monkeypatch):
    monkeypatch.setattr(success_classifier, "ClassifierConfig", partial(ClassifierConfig, members=1, updates=1))
    out = tmp_path / "out"
    stored(out / "experience", [goal(base.lineage.id, number, number % 2 == 0) for number in range(8)])
    about = {"policy": base.version, "tasks": ["stack"], "on": ["none", "turned"], "episodes": 60}
    (out / "experience" / GOALS).write_text(json.dumps(about | {"first_seed": FIRST_SEED, "commit": "abc"}))
    words = ["classifier", str(out), "--oracle-tasks", "stack", "--clips", "0", "--lerobot", str(out / "reward")]
    (out / "reward").mkdir()  # made before the goals were carried out
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["goals_commit"] == "abc"
    kept = (out / "classifier.json").read_bytes()
    assert cli.main(words) == 2 and "holds other files (classifier.json" in capsys.readouterr().err
    assert (out / "classifier.json").read_bytes() == kept


def test_two_commands_do_not_share_a_folder(tmp_path, capsys):
    goals = tmp_path / "out" / "experience.partial"
    goals.mkdir(parents=True)
    lock = WriterLock(tmp_path / "out")
    assert cli.main(["classifier", str(tmp_path / "out"), "--oracle-tasks", "reach", "--episodes", "1"]) == 2
    lock.release()
    assert f"out: already being written by process {os.getpid()}" in capsys.readouterr().err
    assert goals.is_dir()


def test_goals_that_nobody_judged_teach_nothing(tmp_path, base, capsys):
    unjudged = [goal(base.lineage.id, number, False, source=UNJUDGED) for number in range(3)]
    stored(tmp_path / "experience", [*unjudged, goal("", 9, True)])
    assert cli.main(["classifier", str(tmp_path / "out"), "--experience", str(tmp_path / "experience")]) == 2
    said = capsys.readouterr().err
    assert "no judged goal of" in said and "1 goals passed over: unknown lineage" in said
