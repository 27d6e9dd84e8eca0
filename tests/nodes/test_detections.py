"""vision_msgs/Detection3DArray, as other perception stacks publish it, becomes what the memory takes in."""

import numpy as np
import pytest
from geometry_msgs.msg import Point, Pose, Vector3
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose

from engram.core.errors import InvalidInputError
from engram.core.types import SceneObservation
from engram.memory import RobotMemory
from engram.nodes import messages
from engram.runtime.scene_matcher import unreported
from tests.memory.scenes import WordEncoder

SECOND = 10**9


def detection(label: str = "red cup", x: float = 0.4, score: float = 0.9, **box: Vector3) -> Detection3D:
    """Return a detection at (x, 0.1, 0.02) m with one hypothesis."""
    result = ObjectHypothesisWithPose()
    result.hypothesis.class_id, result.hypothesis.score = label, score
    result.pose.pose = Pose(position=Point(x=x, y=0.1, z=0.02))
    found = Detection3D(results=[result])
    if "size" in box:
        found.bbox.center, found.bbox.size = Pose(position=Point(x=x, y=0.1, z=0.02)), box["size"]
    return found


def array(stamp_ns: int, *found: Detection3D, frame: str = "base_link") -> Detection3DArray:
    """Return the message as another process would get it."""
    msg = Detection3DArray(header=Header(stamp=messages.to_stamp(stamp_ns), frame_id=frame), detections=list(found))
    return deserialize_message(serialize_message(msg), Detection3DArray)


def test_a_detection_says_what_it_says_and_nothing_else():
    found = detection(size=Vector3(x=0.06, y=0.07, z=0.1))
    found.results[0].pose.covariance[0] = found.results[0].pose.covariance[7] = found.results[0].pose.covariance[14] = (
        4e-4
    )
    less_likely = ObjectHypothesisWithPose()
    less_likely.hypothesis.class_id, less_likely.hypothesis.score = "bowl", 0.2
    found.results.insert(0, less_likely)
    scene, refused = messages.detections_from_msg(array(5, found))
    (cup,) = scene.objects
    assert (refused, scene.stamp_ns, cup.label, cup.score) == ((), 5, "red cup", 0.9)
    np.testing.assert_allclose(cup.pose.position, (0.4, 0.1, 0.02))
    np.testing.assert_allclose(cup.size, (0.06, 0.07, 0.1))
    np.testing.assert_allclose(cup.position_covariance, 4e-4 * np.eye(3))
    assert cup.embedding is None and cup.color is None
    assert not scene.has_view
    assert unreported(scene) == ("color", "embedding", "camera view")


def test_what_cannot_be_used_is_left_out_by_name_and_the_rest_is_taken():
    elsewhere = detection("plate")
    elsewhere.header.frame_id = "camera_optical_frame"
    nowhere = detection("fork", x=float("nan"))
    scene, refused = messages.detections_from_msg(
        array(5, detection(), Detection3D(), detection(""), elsewhere, nowhere, detection("knife", score=1.5))
    )
    assert [seen.label for seen in scene.objects] == ["red cup"]
    assert [reason.split(":")[0] for reason in refused] == [f"detections[{number}]" for number in (1, 2, 3, 4, 5)]
    assert "no hypothesis" in refused[0] and "class_id" in refused[1]
    assert "'camera_optical_frame', expected 'base_link'" in refused[2]
    with pytest.raises(InvalidInputError, match="frame_id: empty"):
        messages.detections_from_msg(array(5, detection(), frame=""))


def test_of_a_detector_that_suppresses_no_boxes_the_most_confident_ones_are_taken():
    found = [detection(f"box {i}", score=0.5) for i in range(300)]
    found[299].results[0].hypothesis.score = 0.9
    scene, refused = messages.detections_from_msg(array(5, *found, detection("", score=0.1), Detection3D()))
    assert [seen.label for seen in scene.objects] == [*(f"box {i}" for i in range(255)), "box 299"]
    assert (scene.left_out, refused) == (46, ())


def test_a_still_object_seen_eight_times_is_one_that_a_question_finds(tmp_path):
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        for second in range(1, 9):
            scene, _ = messages.detections_from_msg(array(second * SECOND, detection(), detection("blue bowl", x=0.6)))
            assert isinstance(scene, SceneObservation)
            memory.update(scene)
        objects = [node for node in memory.graph().nodes if node.layer == "object"]
        assert sorted(node.label for node in objects) == ["blue bowl", "red cup"]
        assert all(node.belief > 0.95 and node.observations == 8 for node in objects)
        assert "x 0.40, y 0.10, z 0.02" in memory.ask("where is the red cup").text


def test_a_variance_of_minus_one_says_that_it_is_not_known():
    found = detection()
    found.results[0].pose.covariance[0] = -1.0
    scene, refused = messages.detections_from_msg(array(5, found))
    assert refused == () and scene.objects[0].position_covariance is None
