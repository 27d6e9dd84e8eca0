"""Values that cannot be: each is refused by name where it comes in, before it can spoil a memory or move an arm."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.registry import load_object
from engram.core.robot import PANDA_2F85
from engram.core.types import DetectedObject, Pose, SceneObservation
from engram.memory import RobotMemory
from tests.memory.scenes import WordEncoder

HERE = Pose(np.array([0.4, 0.1, 0.02]))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pose": Pose(np.array([1e160, 0.0, 0.0]))}, "pose"),
        ({"label": "  "}, "label"),
        ({"label": "x" * 10_000}, "label"),
        ({"position_covariance": np.array([[1.0, 5, 0], [-5, 1, 0], [0, 0, 1]])}, "position_covariance"),
        ({"position_covariance": -np.eye(3)}, "position_covariance"),
        ({"position_covariance": 1e300 * np.eye(3)}, "position_covariance"),
        ({"size": np.array([-1.0, 1, 1])}, "size"),
        ({"size": np.array([1e300, 1, 1])}, "size"),
    ],
)
def test_an_object_that_cannot_be_is_refused(changes, named):
    with pytest.raises(InvalidInputError, match=f"DetectedObject.{named}"):
        replace(DetectedObject("red cup", HERE), **changes)


@pytest.mark.parametrize("stamp_ns", [2**63, -1, 0.5, float("nan")])
def test_a_stamp_that_cannot_be_is_refused(stamp_ns):
    with pytest.raises(InvalidInputError, match="stamp_ns"):
        SceneObservation(stamp_ns)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"velocity_max": (-1.0,) * 7}, "velocity_max"),
        ({"velocity_max": (float("nan"),) * 7}, "velocity_max"),
        ({"home": (9.0,) * 7}, "home"),
        ({"gripper_closed": PANDA_2F85.gripper_open}, "gripper_open"),
        ({"gripper_closed": float("nan")}, "gripper_closed"),
        ({"arm_joints": ("j",) * 7}, "arm_joints"),
        ({"workspace_min": (0.0, 0.0)}, "workspace_min"),
        ({"servo_lead_s": float("nan")}, "servo_lead_s"),
        ({"name": ""}, "arm_joints"),
    ],
)
def test_a_robot_that_cannot_be_is_refused(changes, named):
    with pytest.raises(InvalidInputError, match=f"RobotConfig.{named}"):
        replace(PANDA_2F85, **changes)


def test_a_file_that_fails_when_it_is_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "raises_at_import.py").write_text("raise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInputError, match="importing raises_at_import failed: RuntimeError: boom"):
        load_object("raises_at_import:X")


def test_a_memory_takes_questions_and_observations_alone(tmp_path):
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        for question in ("", "  ", "?"):
            with pytest.raises(InvalidInputError, match="question: empty"):
                memory.ask(question)
        with pytest.raises(InvalidInputError, match="got a str, expected a SceneObservation"):
            memory.update("a cup")
