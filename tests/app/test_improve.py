"""``engram improve`` practises, measures, goes on after an interruption, and leaves a checkpoint that drives."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from engram.app import cli
from engram.app import improve as improve_module
from engram.app.improve import ImproveConfig
from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionSource
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.store import ExperienceStore
from engram.learning.motion_correction import CorrectionSearch
from engram.learning.rewards.success_classifier import ClassifierConfig, LabelledEpisode, SuccessClassifier
from engram.policies.loading import load_policy
from engram.policies.vla.vla_policy import VlaPolicy
from engram.runtime.factories import policy_folder
from engram.runtime.record import RecordConfig, record
from engram.sim.tasks import get_task
from engram.sim.tasks.memory.unseen import TouchUnseen
from tests.learning.transitions import OTHER, episode
from tests.policies.tiny_lerobot import save_tiny

SEARCHING = ["improve", "--task", "reach", "--on", "none", "--measured", "2", "--rehearsed", "1"]
WORDS = [*SEARCHING, "--updates", "1", "--exploration", "0.05", "--search", "0"]


def improve(folder, capsys, *more, words=WORDS):
    assert cli.main([*words, "--work", str(folder), *more]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_policy_practises_is_measured_goes_on_and_can_be_used(tmp_path, capsys):
    first = improve(tmp_path, capsys, "--episodes", "2", "--measure-at", "0", "2")
    assert [row["episodes"] for row in first["curve"]] == [0, 2]
    assert first["curve"][0]["success"]["n"] == 2
    assert first["policy"] is None  # nothing was learnt yet
    whole = improve(tmp_path, capsys, "--episodes", "6", "--measure-at", "0", "2")
    assert [row["episodes"] for row in whole["curve"]] == [0, 2, 6]
    assert whole["curve"][:2] == first["curve"] and whole["episodes"][:2] == first["episodes"]
    assert all(e["success"] == e["oracle_success"] for e in whole["episodes"])  # the memory said what is true
    assert whole["episodes"][-1]["updates"] >= 5
    fewer = improve(tmp_path, capsys, "--episodes", "5", "--measure-at", "0", "2", "--measured", "3")
    assert fewer["curve"] == whole["curve"][:2]  # what was not measured then cannot be now
    learnt, base = load_policy(whole["policy"]), load_policy("base")
    assert isinstance(learnt, VlaPolicy) and isinstance(base, VlaPolicy)
    pairs = zip(learnt.network.parameters(), base.network.parameters(), strict=True)
    assert any(not np.array_equal(a.detach(), b.detach()) for a, b in pairs)
    card = json.loads((Path(whole["policy"]) / "card.json").read_text())
    assert card["learnt"]["from"] == "base" and card["learnt"]["settings"]["task"] == "reach"
    assert card["sha256"] == learnt.lineage.root != base.lineage.root
    base_card = json.loads((policy_folder("base") / "card.json").read_text())
    assert card["tasks"] == base_card["tasks"] and base_card.keys() - card.keys() >= {"evaluation"}  # of other weights
    assert [path.name for path in Path(whole["policy"]).parent.glob("policy*")] == ["policy"]  # replaced, whole


def test_a_policy_that_remembers_and_reads_practises_with_its_memories(tmp_path, capsys):
    words = ["improve", "--policy", "engram", "--task", "shell_touch", "--verdict", "oracle", "--rehearsed", "0"]
    report = improve(tmp_path, capsys, "--episodes", "1", "--measure-at", "1", "--measured", "1", words=words)
    assert report["curve"][0]["success"]["n"] == 1
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("_engram_seed0")  # base practises elsewhere
    (steps,) = ExperienceReader(folder / "experience").episodes()
    assert all(step.context is not None and len(step.context.tokens) for step in steps)  # what lies there was seen


def test_the_same_weights_with_other_settings_are_another_policy(tmp_path, capsys):
    for name in "ab":
        shutil.copytree(policy_folder("base"), tmp_path / name / "policy")
    more = ("--episodes", "1", "--measure-at", "0", "--measured", "1", "--rehearsed", "0")
    words = [*WORDS, "--work", str(tmp_path / "work"), *more, "--policy"]
    assert cli.main([*words, str(tmp_path / "a" / "policy")]) == 0
    assert cli.main([*words, str(tmp_path / "b" / "policy")]) == 0  # the same in all
    settings = tmp_path / "b" / "policy" / "config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"n_action_steps": 1}))
    capsys.readouterr()
    assert cli.main([*words, str(tmp_path / "b" / "policy")]) == 2
    assert "holds another practice (policy_files: " in capsys.readouterr().err


def test_each_measurement_says_which_commit_made_it(tmp_path, capsys, monkeypatch):
    more = ("--measure-at", "0", "--measured", "1", "--rehearsed", "0", "--others", "1")
    monkeypatch.setattr(improve_module, "_known_tasks", lambda config: ("reach", "stack"))
    monkeypatch.setattr(improve_module, "commit", lambda: "old")
    improve(tmp_path, capsys, "--episodes", "1", *more)
    monkeypatch.setattr(improve_module, "commit", lambda: "new")
    report = improve(tmp_path, capsys, "--episodes", "2", *more)
    assert [(row["episodes"], row["commit"]) for row in report["curve"]] == [(0, "old"), (2, "new")]
    assert [row["commit"] for row in report["others"]["stack"]] == ["old", "new"] and report["commit"] == "new"
    (folder,) = tmp_path.iterdir()
    for name in ("curve.jsonl", "others.json"):  # an earlier version did not say it
        kept = (folder / name).read_text()
        (folder / name).write_text(re.sub(r'"commit": "\w+", |, "commit": "\w+"', "", kept))
    report = improve(tmp_path, capsys, "--episodes", "2", *more)
    assert [row["commit"] for row in (*report["curve"], report["others"]["stack"][0])] == [""] * 3


def test_the_other_tasks_are_measured_before_and_after(tmp_path, capsys):
    more = ("--episodes", "1", "--measure-at", "0", "--others", "1", "--measured", "1")
    report = improve(tmp_path, capsys, *more)
    assert sorted(report["others"]) == ["open_drawer", "pick_place", "press_button", "push_to_mark", "stack"]
    assert all(before == after and before["n"] == 1 for before, after in report["others"].values())  # nothing learnt
    (folder,) = tmp_path.iterdir()
    assert (folder / "others" / "experience.sqlite").exists()
    (folder / "others.json").write_text("{}")
    assert cli.main([*WORDS, "--work", str(tmp_path), *more]) == 2
    assert "--others: 1: the policy has practised already" in capsys.readouterr().err
    assert cli.main([*WORDS, "--work", str(tmp_path), "--rehearsed", "-1"]) == 2
    assert "--rehearsed: -1, expected 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "stop_cube"], "stop_cube: memory cannot judge"),
        (["--task", "dance"], "dance"),
        (["--on", "mars"], "unknown gap 'mars'"),
        (["--verdict", "mood"], "expected one of memory, oracle"),
        (["--exploration", "3"], "--exploration: 3.0, expected 0..1"),
        (["--episodes", "0"], "--episodes: 0"),
        (["--updates", "-1"], "--updates: -1, expected 0 or more"),
        (["--demonstrations", "nowhere"], "dataset 'nowhere': no LeRobotDataset"),
        (["--demonstrations", "x", "--oracle-help", "0.1"], "--demonstrations: x, --search: 0, --oracle-help: 0.1: a"),
        (
            ["--updates", "0", "--others", "2"],
            "--others: 2, --rehearsed: 1: would change nothing: nothing is learnt while search and updates are 0",
        ),
        (["--seed", "-1"], "--seed: -1"),
        (["--seed", "50"], "others would practise on scenes that measure"),
        (["--measure-at", "-5"], "--measure-at: -5"),
        (["--search", "5", "--oracle-help", "0.1"], "--search: 5, --oracle-help: 0.1: an expert's success"),
        (
            ["--oracle-help-by", "guide"],
            "--oracle-help-by: guide: would change nothing: nobody helps while oracle_help",
        ),
        (["--algorithm", "edit_actor:mercy=1"], "unknown option of learning algorithm edit_actor 'mercy'"),
        (
            ["--algorithm", "edit_actor:takeover_cost=0.5"],
            "--algorithm: edit_actor:takeover_cost=0.5: takeover_cost would change nothing: nobody takes over while",
        ),
        (
            ["--oracle-help", "0.1", "--algorithm", "edit_actor:takeover_cost=2"],
            "CriticConfig.takeover_cost: 2.0, expected 0..1",
        ),
        (
            ["--search", "5"],
            "--exploration: 0.05, --updates: 1: would change nothing: nothing is imitated while search is",
        ),
        (["--earlier", "nowhere"], "--earlier: nowhere: nowhere/experience.sqlite: no experience is stored there"),
        (["--search", "-1"], "--search: -1, expected 0 or more"),
        (["--exploration", "nan"], "--exploration: nan"),
    ],
)
def test_what_cannot_be_practised_is_refused_by_name(tmp_path, capsys, words, said):
    assert cli.main([*WORDS, "--work", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_critics_are_not_named_where_they_would_learn_nothing(tmp_path, capsys):
    more = ("--search", "2", "--algorithm", "edit_actor")
    assert cli.main([*SEARCHING, "--work", str(tmp_path), *more]) == 2
    assert "--algorithm: edit_actor: its critics learn nothing while search is 2" in capsys.readouterr().err
    assert cli.main([*SEARCHING, "--work", str(tmp_path), *more[:-1], "edit_actor:takeover_cost=1"]) == 2
    assert "its critics learn nothing while search is 2" in capsys.readouterr().err


def test_a_practice_learns_from_an_earlier_one_and_apart_from_one_that_does_not(tmp_path, capsys):
    more = ("--measure-at", "0", "--measured", "1")
    improve(tmp_path, capsys, "--episodes", "2", *more)
    (earlier,) = tmp_path.iterdir()
    stranger = ExperienceStore(tmp_path.parent / "stranger")  # what practised was the checkpoint that another one left
    stranger.append(episode(0, source=ActionSource("spatial", OTHER.id)))
    stranger.commit()
    stranger.close()
    words = ["--episodes", "1", *more, "--earlier"]
    assert cli.main([*WORDS, "--work", str(tmp_path), *words, str(tmp_path.parent / "stranger")]) == 2
    assert "stranger: none of its episodes may be learnt from (1 other lineage); expected some of lineage base (" in (
        capsys.readouterr().err
    )
    assert cli.main([*WORDS, "--work", str(tmp_path), *words, str(earlier)]) == 0  # the folder is not spoilt
    said = capsys.readouterr()
    report = json.loads(said.out.splitlines()[-1])
    assert "earlier experiments that are learnt from: 2; passed over: none" in " ".join(said.err.split())
    assert report["earlier"] == {"episodes": 2, "passed_over": {}}
    assert report["config"]["earlier"] == [earlier.name] and len(report["episodes"]) == 1
    (folder,) = set(tmp_path.iterdir()) - {earlier}
    assert folder.name.endswith("_earlier_seed0")
    (known,) = json.loads((folder / "practice.json").read_text())["earlier"]
    assert known == ExperienceReader(earlier / "experience").id
    shutil.copytree(earlier, tmp_path / "moved")  # where it lies makes no other practice of it
    again = ["--earlier", str(tmp_path / "moved"), "--episodes", "1"]
    assert cli.main([*WORDS, "--work", str(tmp_path), *more, *again]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["episodes"] == report["episodes"]
    assert "changed since the last start: settings: replay.earlier" in said.err
    assert cli.main([*SEARCHING, "--work", str(tmp_path), "--search", "2", "--earlier", str(earlier)]) == 2
    assert "would change nothing: nothing is imitated while search is 2" in capsys.readouterr().err


def test_critics_practise_with_failures(tmp_path, capsys):
    more = ("--episodes", "2", "--measure-at", "0", "--measured", "1", "--algorithm", "edit_actor")
    report = improve(tmp_path, capsys, *more)
    assert len(report["episodes"]) == 2
    (folder,) = tmp_path.iterdir()
    assert "edit_actor" in folder.name


def test_corrections_are_searched_for_and_told(tmp_path, capsys):
    more = ("--episodes", "3", "--measure-at", "0", "--measured", "1", "--search", "2")
    report = improve(tmp_path, capsys, *more, words=SEARCHING)
    assert report["corrections"] == [asdict(MotionCorrection())]  # two episodes tell nothing surely
    tried = {tuple(one[name] for name in asdict(MotionCorrection())) for one in report["episodes"]}
    assert len(tried) > 1
    assert [path.name.split("_")[-2] for path in tmp_path.iterdir()] == ["search2"]
    again = improve(tmp_path, capsys, *more, words=SEARCHING)
    assert (again["corrections"], again["episodes"]) == (report["corrections"], report["episodes"])


def test_a_policy_of_lerobots_practises_by_corrections_and_leaves_an_edited_checkpoint(tmp_path, capsys, monkeypatch):
    act, half = save_tiny("act", tmp_path / "act", state=15, side=128), MotionCorrection(scale=0.5)
    monkeypatch.setattr(CorrectionSearch, "best", lambda search: half)
    words = ["improve", "--task", "reach", "--on", "none", "--measured", "1", "--policy", str(act), "--search", "1"]
    report = improve(tmp_path / "work", capsys, "--episodes", "2", "--measure-at", "0", words=words)
    assert report["corrections"] == [asdict(half)] * 2
    learnt, base = load_policy(report["policy"]), load_policy(act)
    assert learnt.motion_edit.correction == half.then(half) and learnt.lineage == base.lineage
    assert learnt.version.startswith(f"{base.version}-edit-")
    card = json.loads((Path(report["policy"]) / "card.json").read_text())
    assert card["sha256"] == base.lineage.root != card["learnt"]["sha256"]
    assert card["tasks"] == ["reach"]  # the gate guards what was practised
    again = improve(tmp_path / "work", capsys, "--episodes", "2", "--measure-at", "0", words=words)
    assert (again["corrections"], again["episodes"]) == (report["corrections"], report["episodes"])
    on = [*words, "--policy", report["policy"], "--verdict", "oracle"]  # from the edit that it has
    more = improve(tmp_path / "on", capsys, "--episodes", "1", "--measure-at", "1", words=on)
    assert load_policy(more["policy"]).motion_edit.correction.scale == pytest.approx(0.125)
    assert cli.main(["eval", report["policy"], "--tasks", "reach", "--episodes", "1"]) == 0


@pytest.mark.slow
def test_demonstrations_are_replayed_where_the_memory_sees_things_and_what_went_well_is_learnt(tmp_path, capsys):
    shown = RecordConfig(str(tmp_path / "shown"), tasks=("pick_place",), episodes=2, workers=1, noise=0.0)
    record(shown)
    words = ["improve", "--task", "pick_place", "--on", "none", "--measured", "1", "--search", "0", "--updates", "1"]
    words += ["--demonstrations", shown.root]
    report = improve(tmp_path / "work", capsys, "--episodes", "5", "--measure-at", "5", words=words)
    assert sum(one["success"] for one in report["episodes"]) >= 4
    assert all(one["replayed"] > 10 for one in report["episodes"])
    assert report["episodes"][-1]["updates"] >= 4  # what nobody of the policy did is learnt
    again = improve(tmp_path / "work", capsys, "--episodes", "5", "--measure-at", "5", words=words)
    assert again["episodes"] == report["episodes"]
    other = replace(shown, root=str(tmp_path / "other"), first_seed=200_000)
    record(other)
    words[-1] = other.root
    assert cli.main([*words, "--work", str(tmp_path / "work"), "--episodes", "5"]) == 2
    assert "holds another practice (demonstrations: " in capsys.readouterr().err


def test_what_a_policy_of_lerobots_did_becomes_demonstrations_and_it_stays_as_it_is(tmp_path, capsys):
    act = save_tiny("act", tmp_path / "act", state=15, side=128)
    words = ["improve", "--task", "reach", "--policy", str(act), "--measured", "1", "--search", "0", "--updates", "0"]
    report = improve(tmp_path / "work", capsys, "--episodes", "3", "--measure-at", "0", words=words)
    assert report["policy"] is None and [one["updates"] for one in report["episodes"]] == [0] * 3
    assert [row["episodes"] for row in report["curve"]] == [0]  # it is as it was: measured once
    (folder,) = (tmp_path / "work").iterdir()
    assert folder.name.startswith("reach_turned_memory_behavior_cloning_noise01_nothing_learnt")
    assert cli.main(["dataset", str(folder), "--root", str(tmp_path / "data"), "--episodes", "all"]) == 0
    made = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (made["episodes"], made["frames"]) == (3, sum(one["steps"] for one in report["episodes"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--search", "0"], "--search: 0: act-"),
        (["--rehearsed", "2"], "which hold for all of its goals, so that nothing is rehearsed; expected 0"),
        (["--others", "2"], "has no card.json that names other tasks; expected 0"),
        (["--search", "0", "--algorithm", "edit_actor"], "of type act is frozen, and practises by corrections alone"),
    ],
)
def test_what_a_policy_of_lerobots_cannot_learn_is_refused_by_name(tmp_path, capsys, words, said):
    act = save_tiny("act", tmp_path / "act", state=15, side=128)
    assert cli.main(["improve", "--work", str(tmp_path / "work"), "--policy", str(act), *words]) == 2
    assert said in capsys.readouterr().err
    assert not list((tmp_path / "work").glob("*"))


def test_a_policy_that_is_helped_says_how_much_and_practises_apart_from_one_that_is_not(tmp_path, capsys):
    more = ("--episodes", "4", "--measure-at", "0", "--measured", "1", "--on", "late", "--oracle-help", "0.5")
    report = improve(tmp_path, capsys, *more)
    helped, steps = (sum(one[name] for one in report["episodes"]) for name in ("helped", "steps"))
    assert 0 < helped <= 0.5 * steps
    assert report["curve"][-1]["helped"] == helped / steps
    assert [path.name.split("_")[-2] for path in tmp_path.iterdir()] == ["help05"]
    assert cli.main([*WORDS, "--work", str(tmp_path), "--oracle-help", "2"]) == 2
    assert "--oracle-help: 2.0, expected 0..1" in capsys.readouterr().err


def test_each_kind_of_help_practises_apart_and_may_cost_critics_something(tmp_path, capsys):
    more = ("--episodes", "1", "--measure-at", "0", "--measured", "1", "--oracle-help", "0.5", "--oracle-help-by")
    for by in ("finish", "guide"):
        improve(tmp_path / by, capsys, *more, by, "--algorithm", "edit_actor:takeover_cost=0.5")
    (finish,), (guide,) = ((tmp_path / by).iterdir() for by in ("finish", "guide"))
    assert finish.name == "reach_none_memory_edit_actor-takeover_cost-0-5_noise005_help05_seed0"
    assert guide.name == finish.name.replace("help05", "help05_guide")
    assert json.loads((guide / "practice.json").read_text())["help"]["by"] == "guide"
    assert json.loads((guide / "practice.json").read_text())["algorithm"] == "edit_actor:takeover_cost=0.5"


def test_a_practice_goes_on_with_the_classifier_that_it_began_with_and_with_no_other_in_its_folder(tmp_path, capsys):
    words = {one.format(**dict.fromkeys(get_task("reach").slots(), "red")) for one in get_task("reach").instructions}
    goals = [
        LabelledEpisode(one, np.full((12, 3), float(reached), np.float32), bool(reached))
        for one in sorted(words)
        for reached in (0, 1) * 4
    ]
    more = ("--episodes", "1", "--measure-at", "0", "--measured", "1", "--verdict", str(tmp_path / "judge"))
    for updates in (2, 3):
        learnt = SuccessClassifier.fit("eyes", goals, ClassifierConfig(members=1, width=4, updates=updates))
        learnt.save(tmp_path / "judge")
        if updates == 2:
            first = improve(tmp_path / "work", capsys, *more)
            assert improve(tmp_path / "work", capsys, *more)["curve"] == first["curve"]
    assert cli.main([*WORDS, "--work", str(tmp_path / "work"), *more]) == 2
    assert "holds another practice (judge: memory+classifier " in capsys.readouterr().err


def test_practice_by_a_classifier_takes_the_words_that_it_has_learnt_and_no_others(tmp_path, capsys):
    words = [wording.format(thing="red cube") for wording in TouchUnseen.instructions]
    goals = [
        LabelledEpisode(one, np.full((12, 3), float(number % 2), np.float32), number % 2 == 0)
        for number, one in enumerate(words * 2)
    ]
    learnt = SuccessClassifier.fit("eyes", goals, ClassifierConfig(members=1, width=4, updates=2))
    learnt.save(folder := tmp_path / "judge")
    config = ImproveConfig(verdict=str(folder))
    known = improve_module._judge(config)
    improve_module._check_words(TouchUnseen, known)
    assert known.name == "memory+classifier"
    told = improve_module._told_by(config, known)["judge"]
    assert told.startswith("memory+classifier ") and improve_module._told_by(config, known)["judge"] == told
    SuccessClassifier.fit("eyes", goals, ClassifierConfig(members=1, width=4, updates=3)).save(folder)
    assert improve_module._told_by(config, known)["judge"] != told  # in the same folder
    assert cli.main([*WORDS, "--work", str(tmp_path), "--task", "stop_cube", "--verdict", str(folder)]) == 2
    assert "stop_cube: memory+classifier cannot judge" in capsys.readouterr().err
    assert cli.main([*WORDS, "--work", str(tmp_path), "--verdict", str(tmp_path)]) == 2
    assert "no success classifier of engram classifier" in capsys.readouterr().err
