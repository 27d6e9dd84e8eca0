"""The simulation as a process, on machines that lack something."""

import os
import signal

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Bool, String
from tf2_msgs.msg import TFMessage

from engram.core.errors import EXIT_MISCONFIGURED
from engram.nodes import qos
from engram_interfaces.srv import ResetSim
from tests.ros.processes import NodeProcess

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent", "EGL"),
        ("MUJOCO_EGL_DEVICE_ID", "77", "MUJOCO_EGL_DEVICE_ID"),
    ],
)
def test_a_machine_that_cannot_render_is_told_so_at_the_start_and_the_node_ends(monkeypatch, variable, value, why):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv(variable, value)
    process = NodeProcess("sim_node", {}, int(os.environ["ROS_DOMAIN_ID"]))
    assert process.child.wait(240) == 1
    output = process.output()
    assert "configure failed: no OpenGL context for camera images (MUJOCO_GL='egl'" in output
    assert why in output
    assert "libegl1" in output
    assert "Traceback" not in output


def test_a_world_that_does_not_exist_ends_a_node_that_a_manager_configures(graph):
    sim = graph.start("sim_node", world="bogus", autostart=False)
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    manager = graph.node.create_client(ChangeState, "sim_node/change_state")
    graph.wait(manager.service_is_ready, 60.0, "service sim_node/change_state")
    graph.spin(1.0)  # a client is ready before the service knows of it, and the answer to a stranger is dropped
    answer = manager.call_async(request)
    graph.wait(answer.done, 60.0, "answer of sim_node/change_state")
    assert not answer.result().success
    assert sim.child.wait(120) == EXIT_MISCONFIGURED
    graph.processes.remove(sim)  # it has ended as it should
    assert "error: unknown world 'bogus'; valid: " in sim.output()


def test_a_control_period_that_the_world_does_not_simulate_ends_the_node(graph):
    sim = graph.start("sim_node", control_dt_s=0.05, world_config__profile="none")
    assert sim.child.wait(120) == EXIT_MISCONFIGURED
    graph.processes.remove(sim)  # it has ended as it should
    assert "control_dt_s: 0.05, but world_config.control_dt_s: 0.1; expected the same" in sim.output()


def test_without_cameras_no_opengl_is_needed(graph, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent")
    graph.start("sim_node", world_config__profile="none")
    graph.active("sim_node")


def test_a_first_task_that_does_not_exist_ends_the_node_with_those_there_are(graph):
    sim = graph.start("sim_node", task="bogus", world_config__profile="none")
    assert sim.child.wait(120) == EXIT_MISCONFIGURED
    graph.processes.remove(sim)  # it has ended as it should
    assert "error: unknown task 'bogus'; valid: " in sim.output()
    assert "push_to_mark" in sim.output()


def test_at_rest_it_publishes_clock_joints_links_and_description_and_no_depth(graph):
    clocks = graph.listen(Clock, "/clock")
    joints = graph.listen(JointState, "joint_states")
    moving = graph.listen(TFMessage, "tf", 100)
    fixed = graph.listen(TFMessage, "tf_static", qos.LATCHED)
    colors = graph.listen(Image, "camera/front/color/image_raw")
    infos = graph.listen(CameraInfo, "camera/front/camera_info")
    depths = graph.listen(Image, "camera/front/depth/image_raw")
    described = graph.listen(String, "robot_description", qos.LATCHED)
    graph.start("sim_node", world_config__depth=True, rest_period_s=0.1)
    graph.wait(lambda: min(map(len, (clocks, joints, moving, fixed, colors, infos, described))) > 0, 120, "a robot")

    def frames(heard):
        return {frame.child_frame_id for msg in heard for frame in msg.transforms}

    graph.wait(lambda: {"link1", "link7", "wrist_optical_frame"} <= frames(moving), 60, "moving links")
    graph.wait(lambda: {"link0", "front_optical_frame"} <= frames(fixed[-1:]), 60, "all fixed frames in one message")
    assert '<link name="link7">' in described[-1].data
    before = clocks[-1].clock
    graph.wait(lambda: clocks[-1].clock != before, 60, "the clock goes on")
    assert not depths  # perception and memory are left as they are
    answer = graph.call(ResetSim, "sim/reset", ResetSim.Request(task="reach", seed=1))
    assert (answer.accepted, answer.episode) == (True, 1)


def test_a_step_that_is_shown_again_brings_camera_info_to_who_came_late(graph):
    graph.start("sim_node", task="reach", lockstep=True, retry_s=0.5, command_timeout_s=0.5)
    graph.problem("sim_node", "none for step 0 of episode 1 after ", 120)
    assert "nobody publishes 'command': safety_node is not active" in graph.message("sim_node")
    infos = graph.listen(CameraInfo, "camera/front/camera_info")
    graph.wait(lambda: infos, 60, "camera_info of the step under way")


def test_a_second_simulation_with_the_same_clock_is_refused_and_one_of_its_own_is_not(graph):
    graph.start("sim_node", world_config__profile="none")
    graph.active("sim_node")
    second = NodeProcess("sim_node", {}, graph.domain, remap=("__ns:=/r2",))
    try:
        assert second.child.wait(120) == EXIT_MISCONFIGURED
    finally:
        second.end(signal.SIGKILL)  # one that was not refused would refuse those of the tests to come
    assert "/clock is already published by /sim_node: two simulations cannot share a clock" in second.output()
    third = NodeProcess(
        "sim_node", {"world_config.profile": "none"}, graph.domain, remap=("__ns:=/r2", "/clock:=/r2/clock")
    )
    graph.processes.append(third)
    graph.active("r2/sim_node")
    assert graph.diagnostics["r2/sim_node"].hardware_id == "r2"
    assert graph.diagnostics["sim_node"].hardware_id == "robot0"


def test_while_the_robot_is_stopped_no_episode_begins(graph):
    stopped = graph.node.create_publisher(Bool, "safety/stopped", qos.LATCHED)
    stopped.publish(Bool(data=True))
    graph.start("sim_node", world_config__profile="none")
    graph.active("sim_node")
    graph.matched(stopped)
    graph.spin(0.5)
    refused = graph.call(ResetSim, "sim/reset", ResetSim.Request(task="reach"))
    assert not refused.accepted
    assert "release it first with engram release" in refused.message
    stopped.publish(Bool(data=False))
    graph.spin(0.5)
    assert graph.call(ResetSim, "sim/reset", ResetSim.Request(task="reach")).accepted
    assert graph.call(ResetSim, "sim/reset", ResetSim.Request()).task == "reach"  # "" keeps the current one
