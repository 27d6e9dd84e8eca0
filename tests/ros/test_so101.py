"""The SO-101 through the real processes: one parameter, ``robot``, and the same nodes reach, see and remember."""

import pytest

from engram.nodes import qos
from engram_interfaces.msg import SceneGraphUpdate
from engram_interfaces.msg import SceneObservation as SceneObservationMsg
from tests.ros.policies import SO101_SEED
from tests.ros.test_lockstep import listen, run_episode

pytestmark = [pytest.mark.ros, pytest.mark.render, pytest.mark.slow, pytest.mark.timeout(900)]
ROBOT = {"robot": "so101", "lockstep": True}


def test_it_picks_a_cube_in_lock_step_and_the_memory_knows_the_cubes(graph, tmp_path):
    """The policy acts from a simulation of its own and refuses to go on where that differs by one bit."""
    heard = listen(graph)
    graph.start("safety_node", **ROBOT)
    graph.start("memory_node", use_sim_time=True, store=str(tmp_path / "memory"), **ROBOT)
    graph.start("perception_node", keep_all=True, **ROBOT)
    graph.start("policy_node", policy="tests.ros.policies:SO101Expert", **ROBOT)
    graph.start("sim_node", world_config__depth=True, **ROBOT)
    graph.active("safety_node", "memory_node", "perception_node", "policy_node", "sim_node", timeout_s=400)
    scenes = graph.listen(SceneObservationMsg, "scene/observation", qos.EVENTS)
    updates = graph.listen(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    _, _, commands, end = run_episode(graph, heard, "pick_place", SO101_SEED, timeout_s=400)
    assert end.oracle_success
    assert commands.shape[1] == 6  # five joints and the jaw
    graph.wait(lambda: [scene for scene in scenes if len(scene.objects) >= 3], 60, "three cubes in one picture")
    assert {scene.camera for scene in scenes} == {"front"}
    graph.wait(lambda: [n for u in updates for n in u.nodes if n.layer == "object"], 60, "objects in the graph")
