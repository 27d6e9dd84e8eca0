"""What a parameter's name turns into."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.pipeline import CommandPipeline
from engram.core.robot import PANDA_2F85
from engram.perception.zero_shot import ZeroShotDetectorConfig
from engram.policies import VlaPolicy, load_policy
from engram.policies.vla.chunking import AdaptiveChunks
from engram.runtime.factories import (
    check_policy_choice,
    check_policy_name,
    make_detector,
    make_policy,
    policies_offered,
)
from engram.runtime.loop import Runtime
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram.runtime.policy_switch import make_chosen
from engram.sim.robots.kinematics import ModelKinematics
from engram.sim.world import MujocoWorld, WorldConfig


def test_a_policy_is_ready_when_it_is_made():
    program = (
        "import sys\n"
        "from engram.runtime.factories import make_policy\n"
        "make_policy('base')\n"
        "assert 'engram.perception.minilm' in sys.modules, 'the text encoder is not loaded yet'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_policy_that_cannot_be_is_named_without_loading_torch(tmp_path):
    for name in ("base", str(tmp_path), "owner/name", "json:loads"):
        check_policy_name(name)
    for name in ("bass", "no/such/folder", "./nothing"):
        with pytest.raises(UnknownNameError, match=f"unknown policy '{name}'; .*valid: .*base, engram, owner/name"):
            check_policy_name(name)
    program = "import sys; from engram.runtime.factories import check_policy_name; check_policy_name('base')\n"
    subprocess.run([sys.executable, "-c", program + "assert 'torch' not in sys.modules"], check=True)


def test_the_words_of_the_zero_shot_detector_are_refused_where_another_one_looks():
    make_detector("geometric", ZeroShotDetectorConfig())
    with pytest.raises(
        InvalidInputError, match=r"zero_shot\.prompts: \('bowl',\), .* 'geometric'; only 'zero_shot' reads"
    ):
        make_detector("geometric", ZeroShotDetectorConfig(prompts=("bowl",)))
    with pytest.raises(InvalidInputError, match=r"zero_shot\.threshold: 0\.5, but the detector is 'my:Own'"):
        make_detector("my:Own", ZeroShotDetectorConfig(threshold=0.5))


def test_while_it_runs_a_node_takes_the_policies_that_its_launch_allows():
    simulated = policies_offered("base", "mine.policies:Up, outputs/lift", "any")
    assert {"base", "engram", "mine.policies:Up", "outputs/lift"} <= set(simulated)
    on_a_robot = policies_offered("base", "outputs/lift", "approved")
    assert on_a_robot == ("base", "outputs/lift")
    check_policy_choice("outputs/lift", on_a_robot)
    for spec in ("os:abort", "engram", "somebody/policy", "/tmp"):
        with pytest.raises(UnknownNameError, match=f"unknown policy '{spec}'; .*base, outputs/lift; name others at la"):
            check_policy_choice(spec, on_a_robot)


def test_the_node_lets_chunks_follow_as_the_policy_is_used_to_unless_told_otherwise():
    assert isinstance(make_chosen(PolicyNodeConfig(), PANDA_2F85, "engram", ""), AdaptiveChunks)
    assert isinstance(make_chosen(PolicyNodeConfig(adaptive_m=0.0), PANDA_2F85, "engram", ""), VlaPolicy)


def test_the_node_s_policy_drives_the_node_s_robot_at_its_rate():
    own = dataclasses.replace(PANDA_2F85, gripper_closed=0.085)
    made = make_chosen(PolicyNodeConfig(), own, "base", "")
    assert made.robot is own and isinstance(made.kinematics, ModelKinematics)
    with pytest.raises(InvalidInputError, match=r"control_dt_s 0.05: .* steps of 0.1 s"):
        make_chosen(PolicyNodeConfig(control_dt_s=0.05), own, "base", "")


def test_making_it_ready_leaves_no_trace_in_what_it_does():
    world = MujocoWorld(WorldConfig())
    fresh, ready = (
        Runtime(world, policy, CommandPipeline(world.kinematics, world.robot)).run_episode("reach", 3)
        for policy in (load_policy("base"), make_policy("base"))
    )
    np.testing.assert_array_equal(fresh.commands, ready.commands)
    world.close()
