"""What may be set to drive while a node runs, and what is to drive then."""

import re

import numpy as np
import pytest

from engram.core.robot import PANDA_2F85
from engram.core.types import ActionChunk
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.health import Health
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram.runtime.policy_switch import PolicySwitch
from tests.ros.policies import EyesAndNoise

EYES = "tests.ros.policies:EyesAndNoise"


def switch(**config) -> PolicySwitch:
    return PolicySwitch(PolicyNodeConfig(**{"policy": "base", "ablation": "", **config}), PANDA_2F85)


def test_a_change_names_what_drives_from_then_on():
    choice = switch(policy="engram", ablation="zeroed", policies=EYES)
    assert choice.driver == ("engram", "zeroed")
    assert choice.change({"ablation": "swapped"}, "active") == ""
    assert choice.driver == ("engram", "swapped")
    assert choice.change({"policy": EYES, "ablation": ""}, "active") == ""  # both in one step
    assert choice.driver == (EYES, "")
    assert isinstance(choice.make(choice.driver), EyesAndNoise)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"policy": "os:abort"}, "unknown policy 'os:abort'; .*name others at launch"),
        ({"ablation": "zzz"}, "unknown ablation 'zzz'"),
        ({"policy": EYES, "ablation": "zeroed"}, "ablation 'zeroed': for checkpoints only"),
    ],
)
def test_what_cannot_drive_is_refused_and_changes_nothing(values, reason):
    choice = switch(policies=EYES)
    assert re.match(reason, choice.change(values, "active"))
    assert choice.driver == ("base", "")


def test_on_a_robot_the_ablation_stays_and_only_named_policies_drive():
    choice = switch(accept="approved", policies=EYES)
    assert "only with 'any' may the ablation change" in choice.change({"ablation": "zeroed"}, "active")
    assert "unknown policy 'engram'" in choice.change({"policy": "engram"}, "active")
    assert choice.change({"policy": EYES, "ablation": ""}, "active") == ""


def test_a_node_that_does_not_work_takes_no_other_policy():
    choice = switch()
    assert choice.change({"policy": "engram"}, "inactive") == "the node is inactive, expected active"
    assert choice.driver == ("base", "")


def test_noise_is_held_for_as_long_as_the_parameter_says(tmp_path):
    def applied(**config):
        kept = []
        runner = switch(policy=EYES, policies=EYES, **config).make_runner(
            lambda error: None, EpisodeKeeper(tmp_path), tmp_path, Health()
        )
        actions = np.full((1, 7), 0.5)
        for step in range(12):
            kept.append(runner.explore.apply(ActionChunk(step * 10**8, 1, "ee_delta", actions, 0.1, 1, "v")).actions)
        return {tuple(one[0, :3].round(9)) for one in kept}

    assert len(applied(exploration=0.2)) == 3  # anew after every four control steps
    assert len(applied(exploration=0.2, exploration_hold=0)) == 1  # one for the whole goal
    assert len(applied(exploration=0.2, exploration_hold=6)) == 2
    assert applied(exploration=0.0, exploration_hold=0) == {(0.5, 0.5, 0.5)}
