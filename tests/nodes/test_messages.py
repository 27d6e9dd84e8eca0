"""Every conversion is lossless: core -> message -> core gives the same bits, also after serialisation."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import Quaternion, Transform
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import (
    EPISODE_STATES,
    ActionChunk,
    ActionSource,
    DetectedObject,
    Embodiment,
    EpisodeStatus,
    GraphUpdate,
    HumanAction,
    JointCommand,
    JointState,
    Lineage,
    MemoryTokens,
    PolicyManifest,
    Pose,
    SceneEdge,
    SceneNode,
    SceneObservation,
    Skill,
    Transition,
    Verdict,
)
from engram.learning.weights.announcements import announced
from engram.learning.weights.manifest import canonical
from engram.nodes import messages
from engram.nodes.messages import requests
from engram.runtime.bounds import check_sizes
from engram.runtime.health import Condition
from engram_interfaces.msg import ObjectObservation
from engram_interfaces.msg import SceneObservation as SceneObservationMsg

LINEAGE = Lineage("r" * 64, "a" * 64, "n" * 64, "base")
LAWS = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
finite = st.floats(-1e6, 1e6, allow_nan=False)
stamps = st.integers(0, 2**31 * 10**9 - 1)
RNG = np.random.default_rng(7)


def through(msg):
    """Return ``msg`` as another process would get it."""
    return deserialize_message(serialize_message(msg), type(msg))


def same(a, b) -> bool:
    """Compare two frozen dataclasses bit for bit, arrays included."""
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if hasattr(a, "items"):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def pose(frame="base_link") -> Pose:
    q = RNG.normal(size=4)
    return Pose(RNG.normal(size=3), q / np.linalg.norm(q), frame)


def f32(*shape) -> np.ndarray:
    return RNG.random(shape, dtype=np.float32)


def seen() -> DetectedObject:
    half = RNG.random((3, 3))
    return DetectedObject("red cube", pose(), 0.5, half @ half.T, RNG.random(3), f32(3).astype(float), f32(384))


def node(name="object/1") -> SceneNode:
    color = f32(3).astype(float)  # travels as float32
    return SceneNode(
        name, "object", "cube", pose(), RNG.random((3, 3)), RNG.random(3), color, f32(384), 0.25, "visible", 5, 7, 3
    )


@LAWS
@given(stamps)
def test_stamps(stamp):
    assert messages.from_stamp(messages.to_stamp(stamp)) == stamp


def test_a_stamp_whose_nanoseconds_are_seconds_is_refused():
    with pytest.raises(InvalidInputError, match="stamp: nanosec 1000000000, expected less than 1000000000"):
        messages.from_stamp(Time(sec=1, nanosec=10**9))


def test_a_turn_that_is_no_rotation_is_refused():
    assert requests.guess_from_msg(Transform(rotation=Quaternion(x=0.0, y=0.0, z=0.0, w=0.0))) is None
    with pytest.raises(InvalidInputError, match=r"Pose.quaternion: norm 0\.5000, expected 1"):
        requests.guess_from_msg(Transform(rotation=Quaternion(w=0.5)))


@LAWS
@given(st.lists(st.lists(finite, min_size=7, max_size=7), min_size=1, max_size=16), stamps, st.integers(0, 2**40))
def test_action_chunk(rows, stamp, episode):
    chunk = ActionChunk(stamp, episode, "ee_delta", np.array(rows), 0.1, 1, "v1", ("a", "b"))
    assert same(messages.chunk_from_msg(through(messages.chunk_to_msg(chunk))), chunk)


@LAWS
@given(st.lists(finite, min_size=8, max_size=8), stamps)
def test_joint_states_and_commands_carry_exact_values(values, stamp):
    names = tuple(f"j{i}" for i in range(8))
    joints = JointState(stamp, names, np.array(values), np.array(values[::-1]))
    assert same(messages.joints_from_msg(through(messages.joints_to_msg(joints)), names), joints)
    command = JointCommand(stamp, names, np.array(values), 0.1)
    assert same(messages.command_from_msg(through(messages.command_to_msg(command)), names), command)


def test_joints_are_read_by_name():
    joints = JointState(1, ("a", "b", "c"), np.array([1.0, 2, 3]), np.zeros(3))
    read = messages.joints_from_msg(messages.joints_to_msg(joints), ("c", "a"))
    assert read.positions.tolist() == [3.0, 1.0]
    with pytest.raises(UnknownNameError, match=r"unknown joint in joint_states 'd'.*a, b, c"):
        messages.joints_from_msg(messages.joints_to_msg(joints), ("d",))


def test_a_driver_without_velocities_reads_as_rest():
    msg = messages.joints_to_msg(JointState(1, ("a",), np.array([1.0]), np.zeros(1)))
    msg.velocity = []
    assert messages.joints_from_msg(msg, ("a",)).velocities.tolist() == [0.0]


def test_efforts_are_numbers_or_not_measured_at_all():
    msg = messages.joints_to_msg(JointState(1, ("a", "b"), np.zeros(2), np.zeros(2)))
    for good in ([], [1.0, 2.0], [np.nan, np.nan]):
        msg.effort = good
        messages.joints_from_msg(msg, ("a", "b"))
    for bad in ([1.0], [np.nan, 1.0], [np.inf, 0.0]):
        msg.effort = bad
        with pytest.raises(InvalidInputError, match="efforts"):
            messages.joints_from_msg(msg, ("a", "b"))


@pytest.mark.parametrize("field", ["position", "velocity"])
def test_joint_states_that_are_not_finite_are_refused(field):
    msg = messages.joints_to_msg(JointState(1, ("a",), np.zeros(1), np.zeros(1)))
    setattr(msg, field, [np.nan])
    with pytest.raises(InvalidInputError, match="not finite"):
        messages.joints_from_msg(msg, ("a",))


def test_a_command_message_refuses_what_rclpy_would_turn_into_zero():
    msg = messages.command_to_msg(JointCommand(0, ("a",), np.array([1.5]), 0.1))
    assert msg.points[0].positions[0] == 1.5
    assert (msg.points[0].time_from_start.sec, msg.points[0].time_from_start.nanosec) == (0, 100_000_000)
    with pytest.raises(AssertionError):
        msg.points[0].positions = [np.float32(1.5)]


@pytest.mark.parametrize("shape", [(2, 3), (128, 128), (5, 7)])
def test_images(shape):
    color = RNG.integers(0, 256, (*shape, 3), dtype=np.uint8)
    depth = f32(*shape)
    depth[0, 0] = np.nan
    back = messages.color_from_msg(through(messages.color_to_msg(color, 3, "f")), "front")
    assert same(back, color)
    assert same(messages.depth_from_msg(through(messages.depth_to_msg(depth, 3, "f")), "front"), depth)


def test_padded_rows_and_other_encodings_by_hand():
    padded = Image(height=2, width=1, encoding="bgr8", step=4, data=[1, 2, 3, 99, 4, 5, 6, 99])
    assert messages.color_from_msg(padded, "front").tolist() == [[[3, 2, 1]], [[6, 5, 4]]]
    millimetres = Image(height=1, width=2, encoding="16UC1", step=4, data=[0xE8, 0x03, 0, 0])
    np.testing.assert_allclose(messages.depth_from_msg(millimetres, "front"), [[1.0, 0.0]])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"encoding": "yuv422"}, r"encoding of front 'yuv422'.*bgr8, rgb8"),
        ({"width": 3}, r"front: step 6, expected at least 9"),
        ({"height": 3}, r"front: 12 bytes, expected 6 x 3"),
        ({"height": 0}, r"front: size 2 x 0"),
    ],
)
def test_a_malformed_image_names_what_is_wrong(change, match):
    msg = messages.color_to_msg(np.zeros((2, 2, 3), np.uint8), 0, "f")
    for name, value in change.items():
        setattr(msg, name, value)
    with pytest.raises((InvalidInputError, UnknownNameError), match=match):
        messages.color_from_msg(msg, "front")


def test_depth_of_nothing_but_nan_is_refused():
    msg = messages.depth_to_msg(np.full((2, 2), np.nan, np.float32), 0, "f")
    with pytest.raises(InvalidInputError, match="front: no finite depth in 2 x 2"):
        messages.depth_from_msg(msg, "front")


def test_intrinsics():
    matrix = np.array([[100.0, 0, 64], [0, 101, 63], [0, 0, 1]])
    msg = through(messages.camera_info_to_msg(matrix, 128, 128, 0, "f"))
    assert same(messages.intrinsics_from_msg(msg, "front"), matrix)
    msg.k[0] = 0.0
    with pytest.raises(InvalidInputError, match=r"focal length 0\.0, 101\.0"):
        messages.intrinsics_from_msg(msg, "front")


def test_poses_and_transforms():
    p = pose()
    assert same(messages.pose_from_msg(through(messages.pose_to_msg(p)), "base_link"), p)
    assert same(messages.pose_from_transform(through(messages.pose_to_transform(p, "tool", 9))), p)


def test_scene_observation():
    scene = SceneObservation(5, "front", (seen(), seen()), pose(), RNG.random((3, 3)), (128, 96), f32(6, 8))
    assert same(messages.scene_from_msg(through(messages.scene_to_msg(scene))), scene)
    near = replace(scene, depth_range_m=(0.3, 1.2))
    assert same(messages.scene_from_msg(through(messages.scene_to_msg(near))), near)
    with pytest.raises(InvalidInputError, match=r"SceneObservation\.depth_range_m: 1\.2\.\.0\.3"):
        replace(scene, depth_range_m=(1.2, 0.3))


def test_a_detection_of_a_label_and_a_pose_says_that_nothing_else_is_known():
    msg = ObjectObservation(label="red cube", pose=messages.pose_to_msg(pose()), score=0.5)
    sent = SceneObservationMsg(header=messages.header(5, "base_link"), camera="front", objects=[msg])
    scene = messages.scene_from_msg(sent)
    (found,) = scene.objects
    assert (found.size, found.color, found.position_covariance, found.embedding) == (None, None, None, None)
    assert not scene.has_view
    assert messages.scene_to_msg(scene).objects[0] == msg


def test_graph_update():
    edges = (SceneEdge("a", "b", "on"),)
    skills = (Skill("stack", "v1", 2, 3, 10**18 + 1),)
    skilled = Embodiment("arm", 7, 0.855, 2.0, 0.085, True, ("front camera",), skills)
    robot = dataclasses.replace(node("agent/1"), layer="agent", embodiment=skilled)
    update = GraphUpdate(5, 9, True, (node(), robot), edges, ("object/3",), edges)
    msg = through(messages.graph_to_msg(update, "boot"))
    assert msg.boot_id == "boot"
    assert same(messages.graph_from_msg(msg), update)


def test_a_robot_with_as_many_skills_and_cameras_as_there_may_be_fits_into_a_message():
    """On a robot the words of goals name skills: its node must not grow until every reader refuses it."""
    names = ('\x01"' * 300, "\U0001f600\\" * 300, "put the cup in the box " * 40)
    skills = tuple(Skill(f"{i} {names[i % 3]}", names[i % 3], 10**6, 10**6, 2**62) for i in range(70))
    cameras = tuple(f"{i:03}" + '"' * 197 + " camera" for i in range(16))
    skilled = Embodiment("arm", 7, 0.855, 2.0, 0.085, True, cameras, skills)
    robot = dataclasses.replace(node("agent/1"), layer="agent", embodiment=skilled)
    msg = through(messages.graph_to_msg(GraphUpdate(5, 9, True, (robot,)), "boot"))
    check_sizes(msg)
    assert messages.graph_from_msg(msg).nodes[0].embodiment == skilled


def with_profile(text):
    msg = messages.node_to_msg(node("agent/1"))
    msg.embodiment = text
    return messages.node_from_msg(msg, "base_link")


def test_half_a_surrogate_pair_in_a_robots_profile_is_replaced():
    """It would end what passes it on, and the graph around it is no worse for it."""
    profile = {"kind": "arm \ud800", "sensors": ["\udfff"], "skills": []}
    assert with_profile(json.dumps(profile)).embodiment == Embodiment("arm ?", sensors=("?",))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "[" * 50_000,
        r'{"kind": "arm", "sensors": [], "skills": [], "\ud800": 1}',
        '{"kind": "arm", "sensors": [], "skills": [3]}',
        '{"kind": "", "sensors": [], "skills": []}',
        '{"kind": "arm", "sensors": [3], "skills": []}',
        '{"kind": "arm", "joints": "7", "sensors": [], "skills": []}',
    ],
)
def test_a_malformed_profile_of_a_robot_is_refused_in_words_that_a_log_takes(text):
    with pytest.raises(InvalidInputError, match=r"SceneNode\.embodiment") as told:
        with_profile(text)
    assert str(told.value).encode()


def test_of_too_many_objects_the_best_travel_and_the_others_are_counted():
    msg = SceneObservationMsg(camera="front", width=64, height=64, depth_grid_height=2, depth_grid_width=2)
    msg.header.frame_id, msg.depth_grid = "base_link", [1.0] * 4
    for number in range(300):
        msg.objects.append(ObjectObservation(label=f"box {number}", score=0.9 if number == 299 else 0.5))
        msg.objects[-1].pose.orientation.w = 1.0 if number in (*range(255), 299) else 0.0  # else it is no pose
    scene = messages.scene_from_msg(through(msg))
    assert [seen.label for seen in scene.objects] == [*(f"box {i}" for i in range(255)), "box 299"]
    assert scene.left_out == 44 and not scene.has_view
    assert not messages.scene_from_msg(messages.scene_to_msg(scene)).has_view


@pytest.mark.parametrize("k", [0, 3])
def test_memory_tokens(k):
    tokens = MemoryTokens(5, 2, f32(k, 4), f32(k), f32(k, 3), np.arange(k) % 2 == 0, tuple(f"n{i}" for i in range(k)))
    assert same(messages.tokens_from_msg(through(messages.tokens_to_msg(tokens))), tokens)
    elsewhere = messages.tokens_to_msg(tokens)
    elsewhere.header.frame_id = "map"
    with pytest.raises(InvalidInputError, match=r"MemoryContext\.header\.frame_id: 'map', expected 'base_link'"):
        messages.tokens_from_msg(elsewhere)
    assert len(tokens.first(2).tokens) == min(k, 2)


def test_transition():
    transition = Transition(
        "r", "b", 3, 4, 5, 6, "reach", "go", {"front": RNG.integers(0, 255, (4, 5, 3), dtype=np.uint8)},
        f32(15), f32(7), f32(7), 0.5, "oracle", False, True, False, "human:ann", "v", ("m",),
        ActionSource("base", "0" * 16, "zeroed", ("front", "wrist")),
    )  # fmt: skip
    read = MemoryTokens(6, 9, f32(2, 5), f32(2), f32(2, 3), np.array([True, False]), ("object_0001", ""))
    for one in (transition, replace(transition, context=read, chunk_ns=5 * 10**9 + 7)):
        assert same(messages.transition_from_msg(through(messages.transition_to_msg(one))), one)
    msg = messages.transition_to_msg(replace(transition, context=read))
    msg.context.tokens = msg.context.tokens[:-1]
    with pytest.raises(InvalidInputError, match=r"MemoryContext.tokens"):
        messages.transition_from_msg(msg)
    msg.context.count = 257
    with pytest.raises(InvalidInputError, match=r"MemoryContext.count: 257, expected at most 256"):
        messages.transition_from_msg(msg)


def test_manifest_and_weights():
    data = bytes(RNG.integers(0, 256, 1000, dtype=np.uint8))
    manifest = PolicyManifest("v2", "v1", "0" * 64, 1000, "candidate", {"loss": 0.125}, lineage=LINEAGE)
    msg = through(messages.manifest_to_msg(manifest, 5, 300, b"sig"))
    assert (msg.chunk_size, bytes(msg.signature)) == (300, b"sig")
    assert same(messages.manifest_from_msg(msg), manifest)
    without = dataclasses.replace(manifest, lineage=None)
    assert same(messages.manifest_from_msg(through(messages.manifest_to_msg(without, 5, 300))), without)
    told = announced(manifest, ("r1", "r2"), 10**18)
    heard = messages.manifest_from_msg(through(messages.manifest_to_msg(told, 5, 300)))
    assert same(heard, told) and canonical(heard) == canonical(told)  # its signature holds
    pieces = [through(chunk) for chunk in messages.weight_chunks_to_msgs("v2", data, 300)]
    assert not [*messages.weight_chunks_to_msgs("v2", b"", 300)]  # of a manifest alone
    assert [p.index for p in pieces] == [0, 1, 2, 3]
    assert b"".join(bytes(p.data) for p in pieces) == data
    msg.metrics_json = "[1]"
    with pytest.raises(InvalidInputError, match="metrics_json: a list, expected an object"):
        messages.manifest_from_msg(msg)


@pytest.mark.parametrize(
    "text", [r'{"loss": "\ud800"}', r'{"\udfff": 1}', '{"loss": ' + "9" * 5000 + "}", "{", "[" * 50_000]
)
def test_metrics_that_nothing_could_pass_on_are_refused(text):
    msg = messages.manifest_to_msg(PolicyManifest("v2", "v1", "0" * 64, 1000, "candidate", {}), 5, 300)
    msg.metrics_json = text
    with pytest.raises(InvalidInputError, match="metrics_json: not JSON in Unicode: ") as told:
        messages.manifest_from_msg(msg)
    assert str(told.value).encode()


def test_status_verdict_and_intervention():
    status = EpisodeStatus(5, "r", 6, "reach", "go", 7, "succeeded", True, 1.0, False)
    assert same(messages.status_from_msg(through(messages.status_to_msg(status))), status)
    verdict = Verdict(5, 6, "memory", "confirmed", 0.875, 0.5, "the red cube in the bin", ("front@3",))
    assert same(messages.verdict_from_msg(through(messages.verdict_to_msg(verdict, "r"))), verdict)
    human = HumanAction(5, "ann", True, "ee_delta", RNG.random(7))
    assert same(messages.intervention_from_msg(through(messages.intervention_to_msg(human))), human)
    with pytest.raises(UnknownNameError, match="unknown episode state 'dancing'"):
        EpisodeStatus(0, "", 0, "", "", 0, "dancing")
    wants_a_command = {s for s in EPISODE_STATES if EpisodeStatus(0, "", 0, "", "", 0, s).running}
    assert wants_a_command == {"running", "held"}


def test_a_non_finite_chunk_is_refused_on_arrival():
    msg = messages.chunk_to_msg(ActionChunk(0, 0, "ee_delta", np.zeros((2, 7)), 0.1, 1, "v"))
    msg.actions[3] = float("nan")
    with pytest.raises(InvalidInputError, match=r"ActionChunk\.actions: 1 of 14 values are not finite"):
        messages.chunk_from_msg(msg)


@pytest.mark.parametrize(("level", "wire"), [("ok", DiagnosticStatus.OK), ("error", DiagnosticStatus.ERROR)])
def test_a_condition_travels_as_diagnostics_show_it(level, wire):
    said = Condition(level, "camera: no image", {"state": "active", "frames": "3"})
    msg = through(messages.condition_to_msg("/r2/perception_node", said, 5, "r2"))
    assert (msg.status[0].level, msg.status[0].hardware_id, msg.header.stamp.nanosec) == (wire, "r2", 5)
    assert list(messages.conditions_from_msg(msg)) == [("/r2/perception_node", said)]


def test_a_level_that_ours_do_not_use_reads_as_stale():
    msg = DiagnosticArray(status=[DiagnosticStatus(level=DiagnosticStatus.STALE), DiagnosticStatus(level=b"\xff")])
    assert [said.level for _, said in messages.conditions_from_msg(msg)] == ["stale", "stale"]
