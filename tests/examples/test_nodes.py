"""A task, a world, a detector and a node of one's own, each a process, as the launch files start them."""

import pytest

from engram.core.errors import EXIT_MISCONFIGURED
from engram.nodes import qos
from engram_interfaces.msg import SceneObservation, TaskStatus

pytestmark = [pytest.mark.ros, pytest.mark.render, pytest.mark.timeout(400)]


def test_parts_of_ones_own_run_in_the_nodes(graph):
    from std_msgs.msg import Float32

    statuses = graph.listen(TaskStatus, "task/status", qos.LATCHED)
    scenes = graph.listen(SceneObservation, "scene/observation", qos.EVENTS)
    rates = graph.listen(Float32, "success_rate", qos.LATCHED)
    extra = graph.start("extra_node", "examples.node:SuccessRate")
    graph.start("perception_node", detector="examples.detector:RedThings")
    graph.active("success_rate", "perception_node")
    graph.start(
        "sim_node", world="examples.world:WornWorkcell", task="examples.task:LiftCube",
        world_config__depth=True, world_config__image_size=64,
    )  # fmt: skip
    graph.wait(lambda: statuses and statuses[-1].task, 100, "an episode")
    assert statuses[-1].task == "examples.task:LiftCube"
    graph.wait(lambda: scenes, 100, "a scene")
    assert {found.label for scene in scenes for found in scene.objects} <= {"red thing"}
    graph.wait(lambda: rates, 100, "the end of an episode in which nobody moves the arm")
    assert rates[-1].data == 0.0
    graph.wait(lambda: graph.value("success_rate", "success rate") == "0 of 1", 60, "diagnostics that tell it")
    assert extra.alive()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("examples.node:SuccesRate", "did you mean 'SuccessRate'"),
        ("examples.task:LIFTED_M", "expected a subclass of EngramNode, or a function that runs a node"),
        ("", "name a node as package.module:attribute"),
    ],
)
def test_a_node_that_cannot_be_one_is_named_and_not_started_again(monkeypatch, capsys, spec, why):
    from engram.nodes.extra_node import main

    monkeypatch.setattr("sys.argv", ["extra_node", *filter(None, [spec]), "--ros-args"])
    assert main() == EXIT_MISCONFIGURED
    assert why in capsys.readouterr().err
