"""The simulation as a process, on machines that lack something."""

import os

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState

from engram.core.errors import EXIT_MISCONFIGURED
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
    assert not graph.call(ChangeState, "sim_node/change_state", request).success
    assert sim.child.wait(60) == EXIT_MISCONFIGURED
    graph.processes.remove(sim)  # it has ended as it should
    assert "error: unknown world 'bogus'; valid: " in sim.output()


def test_without_cameras_no_opengl_is_needed(graph, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent")
    graph.start("sim_node", world_config__profile="none")
    graph.active("sim_node")


def test_a_task_that_does_not_exist_is_named_in_the_log_and_the_diagnostics(graph):
    sim = graph.start("sim_node", task="bogus", world_config__profile="none")
    graph.problem("sim_node", "unknown task 'bogus'; valid: ")
    graph.wait(lambda: "task: unknown task 'bogus'; valid: " in sim.output(), 20, "the log names the task")
    assert graph.value("sim_node", "state") == "active"  # sim/reset begins another
