"""What is measured in other light, beside what was measured before the policies were taught."""

import json

import pytest

from engram.benchmarks import light
from engram.benchmarks.light import CONDITIONS, LightBenchmark, figures, main, measure
from engram.core.errors import InvalidInputError
from engram.core.statistics import wilson
from engram.policies.opening import checkpoint_folder
from engram.sim.worlds import make_world
from engram.validation.evaluation import Report


@pytest.fixture
def asked(monkeypatch):
    """Every evaluation that is asked for; darker light is what fails."""
    told = []

    def evaluate(policy, tasks, *, episodes, first_seed, world="tabletop", randomise_looks=False):
        assert first_seed >= 20  # not those on which the alterations were chosen
        told.append((policy, world, randomise_looks))
        rates = {task: wilson(0 if "0.7" in world else episodes, episodes) for task in tasks}
        mean = wilson(sum(r.successes for r in rates.values()), episodes * len(tasks))
        return Report("policy", rates, mean, dict.fromkeys(tasks, 1.0), (0, episodes))

    monkeypatch.setattr(light, "evaluate_checkpoint", evaluate)
    return told


def test_every_policy_meets_every_condition_and_what_is_known_is_not_measured_again(asked, tmp_path):
    before = tuple(str(checkpoint_folder(name)) for name in ("engram", "base"))
    config = LightBenchmark(quick=True, before=before, progress=tmp_path / "kept.jsonl")
    found = measure(config)
    assert list(found) == ["base", "engram", "base_before", "engram_before"]
    assert len(asked) == 2 * len(CONDITIONS)  # the same weights under another name are known
    assert measure(config) == found and len(asked) == 2 * len(CONDITIONS)
    with config.progress.open("a") as out:
        out.write('\n{"policy": ')  # killed there
    assert measure(config) == found and len(asked) == 2 * len(CONDITIONS)
    values = {row["name"]: row["value"] for row in figures(found)}
    assert values["light_base_darker_30"] == 0.0 and values["light_engram_before_as_trained"] == 1.0
    assert len(values) == 4 * len(CONDITIONS)
    met = {row["name"]: row["met"] for row in figures(found)}
    assert (met["light_base_darker_30"], met["light_base_noisy"], met["light_base_before_noisy"]) == (False, True, None)


def test_the_conditions_differ_in_what_their_names_say():
    gaps = {name: make_world(told["world"]).gap for name, told in CONDITIONS.items() if "world" in told}
    assert {name: (gap.brightness, gap.camera_noise) for name, gap in gaps.items()} == {
        "darker_15": (0.85, 0.0),
        "darker_30": (0.7, 0.0),
        "brighter_30": (1.3, 0.0),
        "noisy": (1.0, 0.05),
    }


def test_the_report_is_written(asked, tmp_path):
    main(LightBenchmark(policies=("base",), progress=tmp_path / "kept.jsonl", output=tmp_path / "light.json"))
    report = json.loads((tmp_path / "light.json").read_text())
    assert report["arms"]["base"]["darker_15"]["mean"]["n"] == 120
    assert {row["name"] for row in report["figures"]} == {f"light_base_{name}" for name in CONDITIONS}


def test_two_policies_of_one_name_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="policies: policy, policy, expected folders of different names"):
        measure(LightBenchmark(policies=("a/policy", "b/policy"), progress=tmp_path / "kept.jsonl"))


def test_one_folder_from_before_for_each_policy():
    with pytest.raises(InvalidInputError, match="before: 1 folders, expected one for each of base, engram"):
        LightBenchmark(before=("outputs/base",))
