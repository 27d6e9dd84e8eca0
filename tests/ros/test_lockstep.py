"""The processes over Fast DDS and the in-process loop give the same commands for the same seed, bit for bit."""

import numpy as np
import pytest
from trajectory_msgs.msg import JointTrajectory

from engram.core.pipeline import CommandPipeline
from engram.nodes import qos
from engram.runtime.loop import Runtime
from engram_interfaces.msg import TaskStatus
from engram_interfaces.srv import ResetSim
from tests.core.gantry import GANTRY, GantryKinematics
from tests.ros.policies import EyesAndNoise
from tests.runtime.test_loop import GantryWorld

pytestmark = [pytest.mark.ros, pytest.mark.timeout(600)]
POLICY = "tests.ros.policies:EyesAndNoise"
GANTRY_ROBOT = {"robot": "tests.core.gantry:GANTRY"}


def listen(graph):
    """Return the lists that commands and statuses go to; before the nodes start, so that they know of it in time."""
    statuses = graph.listen(TaskStatus, *qos.every_status(lockstep=True))
    return graph.listen(JointTrajectory, "command", qos.EVENTS), statuses


def run_episode(graph, heard, task, seed, timeout_s=300):
    """Reset the simulation, wait for the end and return episode, instruction and commands (steps, joints)."""
    commands, statuses = heard
    commands.clear()
    answer = graph.call(ResetSim, "sim/reset", ResetSim.Request(task=task, seed=seed))
    assert answer.accepted, answer.message

    def over():
        return [s for s in statuses if s.episode == answer.episode and s.state in ("succeeded", "failed")]

    def steps():
        return {(c.header.stamp.sec, c.header.stamp.nanosec): list(c.points[0].positions) for c in commands}

    end = graph.wait(over, timeout_s, f"end of {task}")[-1]
    graph.wait(lambda: len(steps()) >= end.step, 60, "all commands")
    return answer.episode, answer.instruction, np.array(list(steps().values())), end


def test_the_gantry_gives_identical_commands_in_three_episodes(graph):
    shared = {"lockstep": True, "robot": GANTRY_ROBOT["robot"]}
    heard = listen(graph)
    graph.start("safety_node", **shared)
    graph.start("policy_node", policy=POLICY, cameras=["front"], check_instructions=False, **shared)
    graph.start("sim_node", world="tests.runtime.test_loop:GantryWorld", **shared)
    graph.active("safety_node", "policy_node", "sim_node")
    seen = []
    for seed in (3, 4, 3):
        episode, _, commands, end = run_episode(graph, heard, "reach", seed)
        pipeline = CommandPipeline(GantryKinematics(), GANTRY)
        expected = Runtime(GantryWorld(), EyesAndNoise(), pipeline).run_episode("reach", seed, episode=episode)
        assert end.oracle_success == expected.oracle_success
        np.testing.assert_array_equal(commands, expected.commands)
        seen.append(commands.tobytes())
    assert len(set(seen)) == 3  # other episodes, other noise: the comparison is not of constants
    late = graph.listen(TaskStatus, "task/status", qos.every_step(qos.LATCHED, lockstep=True))
    graph.wait(lambda: late, 60, "the newest status")
    graph.spin(1.0)
    assert [(s.episode, s.state) for s in late] == [(episode, end.state)]  # however many a late reader would take


def same_in_one_process(graph, policy, task, made):
    """Run an episode of ``task`` by the nodes, and compare with the in-process loop of ``made``."""
    from engram.core.robot import PANDA_2F85
    from engram.sim.robots.kinematics import ModelKinematics
    from engram.sim.world import MujocoWorld

    heard = listen(graph)
    graph.start("safety_node", lockstep=True)
    graph.start("policy_node", lockstep=True, policy=policy)
    graph.start("sim_node", lockstep=True)
    graph.active("safety_node", "policy_node", "sim_node")
    episode, instruction, commands, _ = run_episode(graph, heard, task, 11)
    world = MujocoWorld()
    pipeline = CommandPipeline(ModelKinematics(PANDA_2F85), PANDA_2F85)
    expected = Runtime(world, made, pipeline).run_episode(task, 11, episode=episode)
    world.close()
    assert instruction == expected.instruction
    np.testing.assert_array_equal(commands, expected.commands)


@pytest.mark.render
@pytest.mark.parametrize("task", ["reach", "shell_touch:delay=2,alternatives=2"])  # the second holds the arm at first
def test_the_panda_in_mujoco_gives_identical_commands(graph, task):
    same_in_one_process(graph, POLICY, task, EyesAndNoise())


@pytest.mark.render
@pytest.mark.parametrize("family", ["act", "diffusion"])
def test_a_policy_that_lerobot_trained_gives_identical_commands(graph, family, tmp_path):
    from engram.policies import load_policy
    from tests.policies.tiny_lerobot import save_tiny

    folder = save_tiny(family, tmp_path / family, state=15, side=128)
    same_in_one_process(graph, str(folder), "reach", load_policy(folder))
