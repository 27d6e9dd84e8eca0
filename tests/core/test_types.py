import dataclasses

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import ActionChunk, CameraFrame, JointState, MemoryTokens, Observation, Pose

IDENTITY = np.array([1.0, 0, 0, 0])
POSE = Pose(np.zeros(3), IDENTITY)


def frame(**changes):
    values = dict(
        name="front", stamp_ns=0, color=np.zeros((4, 6, 3), np.uint8), intrinsics=np.eye(3), pose=POSE, depth=None
    )
    return CameraFrame(**(values | changes))


def chunk(**changes):
    values = dict(
        stamp_ns=0, episode=1, space="ee_delta", actions=np.zeros((4, 7)), dt_s=0.1, execute_steps=2, policy_version="v"
    )
    return ActionChunk(**(values | changes))


def test_objects_are_frozen_to_the_array():
    with pytest.raises(dataclasses.FrozenInstanceError):
        POSE.frame = "map"
    with pytest.raises(ValueError, match="read-only"):
        POSE.position[0] = 1.0


def test_a_quaternion_must_be_a_rotation():
    with pytest.raises(InvalidInputError, match=r"norm 2\.0000, expected 1"):
        Pose(np.zeros(3), 2 * IDENTITY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"color": np.zeros((4, 6), np.uint8)}, r"camera 'front' color: shape \(4, 6\)"),
        ({"color": np.zeros((4, 6, 3), np.float32)}, "camera 'front' color: dtype float32"),
        ({"depth": np.zeros((6, 4), np.float32)}, r"camera 'front' depth: shape \(6, 4\), expected \(4, 6\)"),
        ({"depth": np.full((4, 6), np.nan, np.float32)}, "camera 'front' depth: no finite value"),
    ],
)
def test_a_malformed_picture_is_named(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        frame(**changes)


def test_depth_may_have_holes():
    depth = np.ones((4, 6), np.float32)
    depth[0, 0] = np.nan
    assert np.isnan(frame(depth=depth).depth[0, 0])


def test_a_missing_camera_is_named_with_those_there_are():
    observation = Observation(0, {"front": frame()}, JointState(0, ("a",), np.zeros(1), np.zeros(1)))
    with pytest.raises(UnknownNameError, match="unknown camera 'wrist'; valid: front"):
        observation.camera("wrist")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.full((4, 7), np.nan)}, "28 of 28 values are not finite"),
        ({"execute_steps": 5}, r"execute_steps: 5, expected 1\.\.4"),
        ({"space": "ee_dleta"}, "did you mean 'ee_delta'"),
        ({"dt_s": 0.0}, "dt_s"),
    ],
)
def test_a_malformed_chunk_is_named(changes, message):
    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        chunk(**changes)


def test_memory_tokens_agree_in_length():
    with pytest.raises(InvalidInputError, match="1 ids for 2 tokens"):
        MemoryTokens(0, 0, np.zeros((2, 3)), np.zeros(2), np.zeros((2, 3)), np.ones(2, bool), ("a",))
