"""The memory node as a process: it answers, and after kill -9 it goes on with what it had committed."""

import itertools
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState as JointStateMsg
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose

from engram.app import cli
from engram.benchmarks.faults_clock import SettableClock
from engram.core.robot import PANDA_2F85
from engram.core.types import ActionChunk, DetectedObject, EpisodeStatus, JointState, Pose, SceneObservation
from engram.memory.graph_memory import GraphMemory
from engram.memory.storage.store import GraphStore
from engram.nodes import messages, qos
from engram.perception.embedding import default_text_encoder
from engram.runtime.graph_mirror import GraphMirror
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import MemoryContext, SceneGraphUpdate, TaskStatus
from engram_interfaces.msg import SceneObservation as SceneObservationMsg
from engram_interfaces.srv import GetGraph, MemoryConflicts, MemoryMerge, MemoryQuery, MemoryResolve
from tests.core.gantry import GANTRY
from tests.ros.memories import GATE

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(600)]
LOOKING_DOWN = Pose(np.array([0.5, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 0.0]))


@pytest.fixture(autouse=True)
def _clock(graph):
    """The nodes' clock stands at 4 s of a simulation: what is stamped with the first seconds is of now."""
    publisher = graph.node.create_publisher(Clock, "/clock", 1)
    graph.node.create_timer(0.1, lambda: publisher.publish(Clock(clock=messages.to_stamp(4 * 10**9))))


def scene(stamp_ns: int, **objects: tuple[float, float]) -> SceneObservation:
    """Return what a camera 1 m above the table sees: objects by label at (x, y)."""
    encoder = default_text_encoder()
    found = []
    for label, (x, y) in objects.items():
        words = label.replace("_", " ")
        found.append(
            DetectedObject(
                words,
                Pose(np.array([x, y, 0.02])),
                0.9,
                np.eye(3) * 1e-5,
                np.full(3, 0.04),
                np.array([0.8, 0.1, 0.1]),
                encoder.encode([words])[0],
            )
        )
    intrinsics = np.array([[100.0, 0, 64], [0, 100.0, 64], [0, 0, 1]])
    depth = np.full((16, 16), 1.0, np.float32)
    return SceneObservation(stamp_ns, "front", tuple(found), LOOKING_DOWN, intrinsics, (128, 128), depth)


def test_it_answers_and_survives_kill_9(graph, tmp_path):
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    status = graph.node.create_publisher(TaskStatus, "task/status", qos.LATCHED)
    updates = graph.listen(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    contexts = graph.listen(MemoryContext, "memory/context", qos.EVENTS)
    words = EpisodeStatus(1, "robot0", 1, "", "take the red cube", 0, "running")
    status.publish(messages.status_to_msg(words))
    first = graph.start("memory_node", use_sim_time=True, store=str(tmp_path / "memory"), commit_period_s=0.1)
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes, status)
    for i in range(1, 5):
        scenes.publish(messages.scene_to_msg(scene(i * 10**8, red_cube=(0.4, 0.1), blue_cup=(0.6, -0.2))))
    graph.wait(lambda: graph.value("memory_node", "durable sequence") == "5", 60, "4 scenes and the robot itself")

    answer = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="red cube"))
    assert answer.nodes[0].label == "red cube"
    where = "at x 0.40, y 0.10, z 0.02 m, on the table"
    assert answer.answer == f"The red cube is {where}; I see it."
    context = graph.wait(lambda: contexts, 60, "memory/context")[-1]
    assert context.dim == 384
    assert answer.nodes[0].id in context.source_ids
    near = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(near="blue cpu"))
    assert "unknown node or label 'blue cpu'; did you mean 'blue cup'" in near.answer

    was = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="where was the red cube at 0.3 s?"))
    assert was.answer.startswith("The red cube was at x 0.40, y 0.10")
    assert "front@100000000" in was.evidence_ids
    past = graph.call(GetGraph, "memory/get_graph", GetGraph.Request(at=messages.to_stamp(2 * 10**8))).graph
    assert {"red cube", "blue cup"} == {node.label for node in past.nodes if node.layer == "object"}

    chunks = graph.node.create_publisher(ActionChunkMsg, "policy/action_chunk", qos.CHUNK)
    read = ActionChunk(4 * 10**8, 1, "ee_delta", np.zeros((1, 7)), 0.1, 1, "base", (answer.nodes[0].id,))
    chunks.publish(messages.chunk_to_msg(read, "robot0"))
    graph.wait(lambda: graph.value("memory_node", "chunks") == "1", 60, "the chunk, before the episode ends")
    ended = EpisodeStatus(5 * 10**8, "robot0", 1, "pick", "take the red cube", 4, "succeeded")
    status.publish(messages.status_to_msg(ended))
    happened = MemoryQuery.Request(text="take the red cube", limit=20)
    success = "'take the red cube' succeeded in 0 s"

    def remembered() -> bool:
        return any(success in one for one in graph.call(MemoryQuery, "memory/query", happened).evidence)

    graph.wait(remembered, 60, "the end of the episode in memory")
    graph.diagnostics.clear()
    graph.wait(lambda: graph.value("memory_node", "everything durable") == "yes", 60, "the commit of the episode")

    first.end(signal.SIGKILL)
    graph.diagnostics.clear()
    boots = {update.boot_id for update in updates}
    graph.start("memory_node", use_sim_time=True, store=str(tmp_path / "memory"))
    graph.active("memory_node", timeout_s=300)
    graph.wait(lambda: {u.boot_id for u in updates} - boots, 60, "the graph of the new boot")
    whole = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
    assert whole.full
    assert whole.sequence == 5
    assert {"red cube", "blue cup"} <= {node.label for node in whole.nodes}
    (robot,) = [node for node in messages.graph_from_msg(whole).nodes if node.layer == "agent"]
    assert robot.label == "robot0"
    assert replace(robot.embodiment, skills=()) == PANDA_2F85.embodiment(("front camera",))
    assert [(skill.task, skill.successes) for skill in robot.embodiment.skills] == [("pick", 1)]
    can = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="which robot can reach the red cube?"))
    assert can.answer == "robot0 can reach the red cube: 0.41 m away, it reaches 0.85 m."
    long = "in a " * 13_000
    refused = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text=long))
    assert refused.answer == "no answer: text: 65000 characters, expected at most 1000"
    assert remembered()
    scenes.publish(messages.scene_to_msg(scene(4 * 10**9, red_cube=(0.4, 0.1), green_bowl=(0.3, 0.3))))
    graph.wait(lambda: any(n.label == "green bowl" for u in updates for n in u.nodes), 60, "the new object")


def test_a_late_reader_and_one_that_lost_a_change_get_the_graph_again(graph, tmp_path):
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    graph.start("memory_node", use_sim_time=True, store=str(tmp_path / "memory"))
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes)
    things = {f"thing_{i}": (0.3 + 0.1 * i, 0.0) for i in range(4)}
    for i in range(1, 4):
        scenes.publish(messages.scene_to_msg(scene(i * 10**8, **things)))
    graph.wait(lambda: graph.value("memory_node", "sequence") == "4", 60, "the robot and three scenes")
    newest_only = qos.COMMAND  # a reader that came late and keeps one change
    updates = graph.listen(SceneGraphUpdate, "memory/graph", newest_only)
    mirror, applied, asked = GraphMirror(), 0, 0

    def follow() -> bool:
        """Apply what came; ask for everything when something is missing. The second change is lost on its way."""
        nonlocal applied, asked
        while applied < len(updates):
            update = updates[applied]
            applied += 1
            if applied == 2:
                continue
            if not mirror.apply(update.boot_id, messages.graph_from_msg(update)):
                asked += 1
                whole = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
                assert mirror.apply(whole.boot_id, messages.graph_from_msg(whole))
        return len(updates) >= 4

    shown = 3

    def move():
        nonlocal shown
        shown += 1
        things["thing_0"] = (0.3, 0.2 + 0.01 * shown)
        scenes.publish(messages.scene_to_msg(scene(shown * 10**8, **things)))

    graph.wait_telling(move, lambda: updates, 60, "a change that the late reader hears", period_s=2.0)
    while not follow():
        before = len(updates)
        move()
        graph.wait(lambda before=before: len(updates) > before, 60, "the next change")
    whole = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
    assert asked == 2  # once because it came late, once because a change was lost
    assert mirror.sequence == whole.sequence
    assert set(mirror.nodes) == {node.id for node in whole.nodes}
    thing = next(node for node in mirror.nodes.values() if node.label == "thing 0")
    np.testing.assert_allclose(thing.pose.position[1], 0.2 + 0.01 * shown, atol=0.02)
    assert graph.call(Trigger, "memory/publish_graph", Trigger.Request()).success
    graph.wait(lambda: updates[-1].full and updates[-1].sequence == whole.sequence, 60, "the whole graph on the topic")
    assert {node.id for node in updates[-1].nodes} == set(mirror.nodes)


def test_a_robot_that_drives_remembers_places_of_the_map(graph, tmp_path):
    """Scenes in base_link wait for tf; the same thing seen from two places of the map is one thing."""
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    tf = graph.node.create_publisher(TFMessage, "tf", qos.SENSOR)
    graph.start("memory_node", use_sim_time=True, store=str(tmp_path / "memory"), frame="map", map="house 1")
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes, tf)

    def base_at(x: float, stamp_ns: int) -> None:
        pose = Pose(np.array([x, 5.0, 0.0]), np.array([1.0, 0, 0, 0]), "map")
        tf.publish(TFMessage(transforms=[messages.pose_to_transform(pose, "base_link", stamp_ns)]))

    scenes.publish(messages.scene_to_msg(scene(10**8, red_cube=(0.4, 0.1))))
    graph.wait(lambda: graph.value("memory_node", "scenes") == "1", 60, "the first scene")
    base_at(3.0, 10**8)
    graph.wait(lambda: graph.value("memory_node", "sequence") == "2", 60, "the scene, its tf and the robot")
    base_at(3.1, 2 * 10**8)
    scenes.publish(messages.scene_to_msg(scene(2 * 10**8, red_cube=(0.3, 0.1))))
    graph.wait(lambda: graph.value("memory_node", "sequence") == "3", 60, "the second scene and its tf")
    whole = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
    (cube,) = [node for node in whole.nodes if node.layer == "object"]
    assert whole.header.frame_id == "map"
    assert (round(cube.pose.position.x, 3), round(cube.pose.position.y, 3)) == (3.4, 5.1)
    assert cube.observations == 2
    (robot,) = [node for node in whole.nodes if node.layer == "agent"]
    assert (round(robot.pose.position.x, 3), robot.pose.position.y) == (3.1, 5.0)
    was = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="where was robot0 at 0.1 s"))
    assert was.answer.startswith("robot0 was at x 3.00, y 5.00")


def test_a_running_node_lists_and_decides_what_a_merge_left_open_and_keeps_it_over_kill_9(graph, tmp_path, capsys):
    """Each decision is durable when it is answered, and its change alone brings a reader up to date."""
    other = GraphMemory(GraphStore(tmp_path / "robot1"), encoder=default_text_encoder())
    for i in range(1, 5):
        other.update(scene((20 + i) * 10**8, red_cube=(0.7, -0.2), green_bowl=(0.3, 0.3)))
    other.commit()
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    updates = graph.listen(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    store = {"store": str(tmp_path / "memory"), "commit_period_s": 3600.0}  # nothing is committed in passing
    node = graph.start("memory_node", use_sim_time=True, **store)
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes)
    for i in range(1, 5):
        scenes.publish(messages.scene_to_msg(scene(i * 10**8, red_cube=(0.4, 0.1), blue_cup=(0.6, -0.2))))
    graph.wait(lambda: graph.value("memory_node", "sequence") == "5", 60, "4 scenes and the robot itself")
    merge = MemoryMerge.Request(store_path=str(tmp_path / "robot1"))
    merge.transform.rotation.w = 1.0
    assert graph.call(MemoryMerge, "memory/merge", merge).status == "merged"
    mirror, applied = GraphMirror(), 0

    def follow():
        nonlocal applied
        while applied < len(updates):
            update = updates[applied]
            applied += 1
            assert mirror.apply(update.boot_id, messages.graph_from_msg(update)), "a change is missing"
        return mirror.sequence

    def undecided():
        answer = graph.call(MemoryConflicts, "memory/conflicts", MemoryConflicts.Request())
        assert answer.accepted, answer.reason
        return [(one.kind, one.ours, one.theirs) for one in answer.conflicts]

    def decide(**fields):
        return graph.call(MemoryResolve, "memory/resolve", MemoryResolve.Request(**fields))

    def shown(sequence):
        graph.wait(lambda: follow() == sequence, 60, "the change")
        return {node.id for node in mirror.nodes.values() if node.label == "red cube"}

    def again():
        """Kill the node and start it on what is on disk."""
        node.end(signal.SIGKILL)
        graph.diagnostics.clear()
        started = graph.start("memory_node", use_sim_time=True, **store)
        graph.active("memory_node", timeout_s=300)
        graph.wait(lambda: follow() and updates[-1].boot_id == mirror.boot_id, 60, "the graph of the new boot")
        return started

    ours = next(n.id for u in updates for n in u.nodes if n.label == "red cube" and not n.id.startswith("robot1/"))
    pair = {ours, theirs := "robot1/object_0001"}
    graph.wait(lambda: follow() and theirs in mirror.nodes, 60, "the graph after the merge")
    before = mirror.sequence
    assert undecided() == [("moved", ours, theirs)]
    for fields, why in (
        ({"action": "join", "a": ours, "b": "robot1/object_0009"}, "unknown object 'robot1/object_0009'; did you mean"),
        ({"action": "marry", "a": ours, "b": theirs}, "unknown action 'marry'; valid: join, keep_apart, undo"),
        ({"action": "undo", "merge": 99}, "merge 99: not one that can be undone"),
    ):
        refused = decide(**fields)
        assert (refused.accepted, why in refused.reason) == (False, True), refused.reason
    assert undecided() == [("moved", ours, theirs)] and shown(before) == pair
    assert cli.main(["memory", "join", "--store", store["store"], ours, theirs]) == 2
    assert "if that is a memory node, call its service memory/resolve" in capsys.readouterr().err

    joined = decide(action="join", a=ours, b=theirs)
    assert joined.accepted and joined.merge > 0, joined.reason
    assert shown(before + 1) == {ours}
    node = again()
    whole = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
    assert whole.sequence == before + 1 and theirs not in {n.id for n in whole.nodes} and undecided() == []
    undone = decide(action="undo", merge=joined.merge)
    assert undone.accepted and shown(before + 2) == pair, undone.reason
    assert undecided() == [("moved", ours, theirs)]
    apart = decide(action="keep_apart", a=theirs, b=ours)
    assert apart.accepted and shown(before + 3) == pair, apart.reason
    node = again()
    assert undecided() == [] and shown(before + 3) == pair


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """The file that the memory ``Gated`` waits for."""
    monkeypatch.setenv(GATE, str(tmp_path / "go"))
    return tmp_path / "go"


def test_what_the_disk_does_not_take_is_told_so_stands_and_the_next_commit_tries_again(graph, gate, tmp_path):
    other = GraphMemory(GraphStore(tmp_path / "robot1"), encoder=default_text_encoder())
    other.update(scene(10**8, green_bowl=(0.3, 0.3)))
    other.commit()
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    graph.start("memory_node", use_sim_time=True, memory="tests.ros.memories:FullDisk", commit_period_s=0.1)
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes)
    scenes.publish(messages.scene_to_msg(scene(10**8, red_cube=(0.4, 0.1), blue_cup=(0.6, -0.2))))
    graph.wait(lambda: graph.value("memory_node", "sequence") == "2", 60, "the scene and the robot itself")
    join = MemoryResolve.Request(action="join", a="object_0001", b="object_0002")
    joined = graph.call(MemoryResolve, "memory/resolve", join)
    assert not joined.accepted and joined.merge == 1
    assert joined.reason.endswith("takes that back; but that is not durable yet: no space left on device")

    def merge(name="robot1", undo=False):
        request = MemoryMerge.Request(store_path=str(tmp_path / name), undo=undo)
        request.transform.rotation.w = 1.0
        return graph.call(MemoryMerge, "memory/merge", request).status

    merged = "merged; but that is not durable yet: no space left on device"
    assert merge() == merged
    graph.problem("memory_node", f"memory/merge: {merged}")
    assert "green bowl" in {n.label for n in graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph.nodes}
    assert merge() == "the memory of 'robot1' is merged already: undo that first"
    assert merge("robot2", undo=True) == "no memory of 'robot2' was merged"
    graph.diagnostics.clear()
    graph.wait(lambda: graph.value("memory_node", "everything durable") == "no", 60, "what is not durable")
    gate.touch()
    graph.wait(lambda: graph.value("memory_node", "durable sequence") == "4", 60, "the next commit")
    assert merge(undo=True) == "undone"


def ask_twice(graph):
    """Ask the memory ``Gated`` what it waits with, and something that waits behind it; return both futures."""
    graphs = graph.node.create_client(GetGraph, "memory/get_graph")
    queries = graph.node.create_client(MemoryQuery, "memory/query")
    graph.wait(lambda: graphs.service_is_ready() and queries.service_is_ready(), 60, "the services")
    first = graphs.call_async(GetGraph.Request(at=messages.to_stamp(10**9)))
    graph.spin(2.0)  # it is in the worker
    second = queries.call_async(MemoryQuery.Request(near="table"))
    graph.spin(1.0)
    return first, second


def test_no_flood_of_joint_states_and_transforms_costs_an_answer(graph, gate):
    """While the worker is busy, far more transforms come than its queue of 256 has room for."""
    joints = graph.node.create_publisher(JointStateMsg, "joint_states", qos.SENSOR)
    tf = graph.node.create_publisher(TFMessage, "tf", qos.SENSOR)
    robot = {"robot": "tests.core.gantry:GANTRY"}
    graph.start("memory_node", use_sim_time=True, memory="tests.ros.memories:Gated", frame="map", **robot)
    graph.active("memory_node", timeout_s=300)
    graph.matched(joints, tf)
    first, second = ask_twice(graph)
    home = Pose(np.zeros(3), np.array([1.0, 0, 0, 0]), "map")
    for stamp_ns in range(10**6, 1500 * 10**6, 10**6):
        still = JointState(stamp_ns, GANTRY.joint_names, np.zeros(4), np.zeros(4))
        joints.publish(messages.joints_to_msg(still))
        tf.publish(TFMessage(transforms=[messages.pose_to_transform(home, "base_link", stamp_ns)]))
        time.sleep(0.002)
    gate.touch()
    graph.wait(lambda: first.done() and second.done(), 60, "both answers")
    assert "no camera has shown me all of the table" in second.result().answer
    assert graph.value("memory_node", "memory drops") == ""


def test_who_waits_when_the_node_is_deactivated_is_told_so_and_the_node_lives(graph, gate):
    graph.start("memory_node", use_sim_time=True, memory="tests.ros.memories:Gated")
    graph.active("memory_node", timeout_s=300)
    first, second = ask_twice(graph)
    changes = graph.node.create_client(ChangeState, "memory_node/change_state")
    graph.wait(changes.service_is_ready, 60, "the lifecycle")
    change = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_DEACTIVATE))
    deactivated = changes.call_async(change)
    graph.spin(3.0)  # it waits for the worker
    gate.touch()
    graph.wait(lambda: first.done() and second.done() and deactivated.done(), 60, "all answers")
    assert second.result().answer == "no answer: the memory node is being stopped"
    assert first.result().graph.full and deactivated.result().success
    change.transition.id = Transition.TRANSITION_ACTIVATE
    assert graph.call(ChangeState, "memory_node/change_state", change).success
    again = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(near="table"))
    assert "no camera has shown me all of the table" in again.answer


@pytest.mark.parametrize("lockstep", [True, False])
def test_what_the_hand_holds_is_told_by_the_joint_states_of_the_scenes_instant(graph, lockstep):
    """In lock-step a scene waits for them; in free running those that are there count."""
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    joints = graph.node.create_publisher(JointStateMsg, "joint_states", qos.SENSOR)
    robot = {"robot": "tests.core.gantry:GANTRY"}
    graph.start("memory_node", use_sim_time=True, memory="tests.ros.memories:Gated", lockstep=lockstep, **robot)
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes, joints)
    stamps_ns = itertools.count(10**9, 10**9)

    def tell() -> None:  # again and again: in free running a busy machine may deliver a scene before its joint states
        at = JointState(next(stamps_ns), GANTRY.joint_names, np.array([0.4, 0.1, 0.02, 0.4]), np.zeros(4))
        told = [
            lambda: joints.publish(messages.joints_to_msg(at)),
            lambda: scenes.publish(messages.scene_to_msg(scene(at.stamp_ns, red_cube=(0.4, 0.1)))),
        ]
        for out in reversed(told) if lockstep else told:
            out()
            graph.spin(0.5)

    def held() -> set[str]:
        whole = messages.graph_from_msg(graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph)
        return {edge.source for edge in whole.edges if edge.relation == "held_by"}

    graph.wait_telling(tell, held, 60, "that the cube is held")


def test_a_recording_tells_nothing_of_episodes_nor_of_the_hand(graph, tmp_path):
    """What it says comes after what the robot's own nodes say, with the same stamps."""
    told = ["joint_states=sim_node", "task/status=sim_node", "policy/action_chunk=policy_node"]
    robot = {"robot": "tests.core.gantry:GANTRY", "store": str(tmp_path / "memory"), "commit_period_s": 0.1}
    graph.start("memory_node", use_sim_time=True, writers=told, **robot)
    graph.active("memory_node", timeout_s=300)
    make = graph.node.create_publisher
    scenes = make(SceneObservationMsg, "scene/observation", qos.EVENTS)
    own = graph.outsider("sim_node").create_publisher(JointStateMsg, "joint_states", qos.SENSOR)
    joints, status = make(JointStateMsg, "joint_states", qos.SENSOR), make(TaskStatus, "task/status", qos.LATCHED)
    chunks = make(ActionChunkMsg, "policy/action_chunk", qos.CHUNK)
    graph.matched(scenes, own, joints, status, chunks)
    for stamp_ns in (10**9, 2 * 10**9):
        for publisher, x, y in ((own, 0.4, 0.1), (joints, -0.4, -0.1)):
            at = JointState(stamp_ns, GANTRY.joint_names, np.array([x, y, 0.02, 0.4]), np.zeros(4))
            publisher.publish(messages.joints_to_msg(at))
            graph.spin(0.5)
        scenes.publish(messages.scene_to_msg(scene(stamp_ns, red_cube=(0.4, 0.1))))
        graph.spin(0.5)
    for step, state in enumerate(("running", "succeeded")):
        was = EpisodeStatus((step + 1) * 10**9, "robot0", 1, "pick", "take the red cube", step, state)
        status.publish(messages.status_to_msg(was))
        graph.spin(0.5)
    chunks.publish(messages.chunk_to_msg(ActionChunk(10**9, 1, "ee_delta", np.zeros((1, 7)), 0.1, 1, "base"), "robot0"))
    for topic, sent in (("joint_states", "2"), ("task/status", "2"), ("policy/action_chunk", "1")):
        key = f"refused from other writers: {topic}"
        graph.wait(lambda key=key, sent=sent: graph.value("memory_node", key) == sent, 10, key)
    whole = messages.graph_from_msg(graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph)
    (hand,) = [node for node in whole.nodes if node.layer == "agent"]
    assert [edge.relation for edge in whole.edges if edge.target == hand.id] == ["held_by"]
    assert hand.embodiment.skills == ()
    happened = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="take the red cube", limit=20))
    assert not any("succeeded" in one for one in happened.evidence)


def test_detections_of_another_stack_in_a_cameras_frame_become_objects(graph, tmp_path):
    detections = graph.node.create_publisher(Detection3DArray, "detections", qos.SENSOR)
    static = graph.node.create_publisher(TFMessage, "tf_static", qos.LATCHED)
    graph.start("memory_node", use_sim_time=True, store=str(tmp_path), track_hand=False)
    graph.active("memory_node", timeout_s=300)
    mount = messages.pose_to_transform(Pose(np.array([0.4, 0.1, 1.0]), LOOKING_DOWN.quaternion), "eye", 0)
    static.publish(TFMessage(transforms=[mount]))
    graph.matched(detections)  # tf is subscribed to when the first detections come in a frame of their own
    for i in range(1, 9):  # 0.98 m in front of a camera that looks down from 1 m above
        found = Detection3D(results=[ObjectHypothesisWithPose()])
        found.results[0].hypothesis.class_id, found.results[0].hypothesis.score = "red cup", 0.9
        found.results[0].pose.pose.position.z = 0.98
        detections.publish(
            Detection3DArray(header=messages.header(i * 10**8, "eye"), detections=[found, Detection3D()])
        )
        graph.wait(lambda i=i: graph.value("memory_node", "scenes") == str(i), 60, f"scene {i}")
    graph.wait(lambda: graph.value("memory_node", "sequence") not in ("", "0"), 60, "a change in memory")
    answer = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="where is the red cup?"))
    assert "x 0.40, y 0.10, z 0.02" in answer.answer
    known = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
    (cup,) = [node for node in messages.graph_from_msg(known).nodes if node.layer == "object"]
    assert cup.belief > 0.95 and cup.observations == 8
    assert graph.value("memory_node", "detections left out") == "8"
    assert graph.value("memory_node", "scenes without embedding") == "8"


def test_after_the_clock_of_the_machine_was_set_back_it_goes_on_seeing(graph, tmp_path, monkeypatch):
    clock = SettableClock(tmp_path / "clock")
    for name, value in clock.environment(os.environ.get("PYTHONPATH", "")).items():
        monkeypatch.setenv(name, value)
    scenes = graph.node.create_publisher(SceneObservationMsg, "scene/observation", qos.EVENTS)
    graph.start("memory_node", store=str(tmp_path / "memory"), commit_period_s=0.1)
    graph.active("memory_node", timeout_s=300)
    graph.matched(scenes)
    for set_s, x in ((0.0, 0.4), (-300.0, 0.6)):
        clock.set_by(set_s)
        graph.spin(0.2)

        def tell(set_s=set_s, x=x) -> None:
            stamp_ns = time.time_ns() + int(set_s * 1e9)
            scenes.publish(messages.scene_to_msg(scene(stamp_ns, red_cube=(x, 0.1))))

        def seen(x=x) -> bool:
            graph_now = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
            return [round(n.pose.position.x, 2) for n in graph_now.nodes if n.label == "red cube"] == [x]

        graph.wait_telling(tell, seen, 30, f"the cube at {x}", period_s=0.3)
    graph.diagnostics.clear()
    graph.wait(lambda: graph.value("memory_node", "everything durable") == "yes", 60, "all that was seen is durable")
