"""Detections of other perception stacks: vision_msgs/Detection3DArray -> a scene observation."""

from __future__ import annotations

import math

import numpy as np
from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose

from engram.core.errors import InvalidInputError
from engram.core.types import DetectedObject, Pose, SceneObservation, best_scores
from engram.nodes.messages.basics import from_stamp, pose_from_msg, xyz

DETECTIONS = "detector"
"""Camera name of an observation that came as detections: the message does not name its camera."""


def detections_from_msg(msg: Detection3DArray) -> tuple[SceneObservation, tuple[str, ...]]:
    """Return the observation of one Detection3DArray, and why detections of it were left out.

    Each detection counts as its most confident class. The box gives place and size; a detection without a box is
    where that class's pose says. A detection without a class, in another frame, or with a number that does not fit is
    left out, and the reason names its place in the array. Of more than an observation holds the most confident ones
    are looked at. The message has no camera, so that a missing object is no evidence of absence.

    Raises:
        InvalidInputError: nothing says which frame the poses are in.
    """
    frame = msg.header.frame_id or next((found.header.frame_id for found in msg.detections), "")
    if not frame:
        raise InvalidInputError("Detection3DArray.header.frame_id: empty, expected the frame of the poses")
    objects: list[DetectedObject] = []
    refused: list[str] = []
    kept = best_scores([max(map(_score, found.results), default=-1.0) for found in msg.detections])
    for number in kept:
        try:
            objects.append(_object(msg.detections[number], frame))
        except InvalidInputError as error:
            refused.append(f"detections[{number}]: {error}")
    stamp_ns, where = from_stamp(msg.header.stamp), Pose(np.zeros(3), frame=frame)
    left_out = len(msg.detections) - len(kept)
    return SceneObservation(stamp_ns, DETECTIONS, tuple(objects), where, left_out=left_out), tuple(refused)


def _object(found: Detection3D, frame: str) -> DetectedObject:
    if found.header.frame_id not in ("", frame):
        raise InvalidInputError(f"frame {found.header.frame_id!r}, expected {frame!r} as the array")
    if not found.results:
        raise InvalidInputError("no hypothesis, expected at least one class_id with its score")
    best = max(found.results, key=_score)
    if not best.hypothesis.class_id:
        raise InvalidInputError("class_id: empty, expected the name of the class")
    size = xyz(found.bbox.size)
    covariance = np.array(best.pose.covariance, np.float64).reshape(6, 6)[:3, :3]
    return DetectedObject(
        best.hypothesis.class_id,
        pose_from_msg(found.bbox.center if size.any() else best.pose.pose, frame),
        float(best.hypothesis.score),
        covariance if covariance.any() and covariance[0, 0] >= 0 else None,  # -1 says that it is not known
        size if size.any() else None,
    )


def _score(result: ObjectHypothesisWithPose) -> float:
    score = result.hypothesis.score
    return -1.0 if math.isnan(score) else score
