"""Values that cannot be: each is refused by name where it comes in, before it can spoil a memory or move an arm."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.contracts import Detector
from engram.core.errors import InvalidInputError, StoreError
from engram.core.pipeline import CommandPipeline
from engram.core.registry import load_object, make_kinematics, resolve, resolve_class
from engram.core.robot import PANDA_2F85
from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import DetectedObject, JointState, Pose, SceneObservation
from engram.memory import RobotMemory
from engram.runtime.loop import remember
from engram.sim.tasks.base import Task
from tests.memory.scenes import WordEncoder

HERE = Pose(np.array([0.4, 0.1, 0.02]))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pose": Pose(np.array([1e160, 0.0, 0.0]))}, "pose"),
        ({"label": "  "}, "label"),
        ({"label": "x" * 10_000}, "label"),
        ({"label": "cup\x07"}, r"label: 'cup\\x07' has '\\x07' at 3, expected printable characters"),
        ({"label": "cup\x1b[2J"}, "label"),
        ({"label": "red\ncup"}, "label"),
        ({"label": "\ud800"}, r"label: '\\ud800' has"),
        ({"label": "cup\uffff"}, "label"),
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


def test_a_pose_in_a_frame_of_endless_name_is_refused():
    with pytest.raises(InvalidInputError, match=r"Pose.frame: 65536 characters, expected at most 256"):
        replace(HERE, frame="x" * 65536)


@pytest.mark.parametrize("label", ["rote Tasse ☕", "tasse\u00a0rouge", "👩\u200d🍳", "红杯子", "كوب"])
def test_a_label_may_be_in_any_language(label):
    assert DetectedObject(label, HERE).label == label


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


def test_a_memory_that_cannot_be_opened_or_is_closed_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="cannot be written as a store"):
            RobotMemory.open(path)
    with RobotMemory.open(tmp_path / "memory", encoder=WordEncoder()) as memory:
        pass
    for use in (lambda: memory.ask("where is the cup"), lambda: memory.update(SceneObservation(1))):
        with pytest.raises(StoreError, match="the memory is closed"):
            use()


def test_joints_of_another_robot_or_order_are_never_driven():
    pipeline = CommandPipeline(make_kinematics(PANDA_2F85), PANDA_2F85)
    home = np.append(PANDA_2F85.home, PANDA_2F85.gripper_open)
    with pytest.raises(InvalidInputError, match=r"joints gripper, joint7, .* expected in this order: joint1, "):
        pipeline.step(JointState(0, PANDA_2F85.joint_names[::-1], home[::-1], np.zeros(8)))
    for action in ("abc", [[1], [2, 3]], [1j] * 7, np.full(7, np.nan)):
        decision = pipeline.step_action(JointState(0, PANDA_2F85.joint_names, home, np.zeros(8)), action)
        assert decision.command.held
        np.testing.assert_allclose(decision.command.positions, home)


class Abstract(Task):
    """Leaves everything out."""


class Breaks:
    """A part whose construction fails."""

    def __init__(self):
        raise RuntimeError("no license")


def test_a_part_that_cannot_be_made_is_named():
    with pytest.raises(InvalidInputError, match=r"task '.*:Abstract' lacks .*oracle_success"):
        resolve_class("task", f"{__name__}:Abstract", {}, Task)
    with pytest.raises(InvalidInputError, match=r"part '.*:Breaks' cannot be made: RuntimeError: no license"):
        resolve("part", f"{__name__}:Breaks", {}, Breaks)


def test_a_detector_that_returns_something_else_is_named():
    class Garbage(Detector):
        def detect(self, frame):
            return "garbage"

    with pytest.raises(InvalidInputError, match=r"detector Garbage: detect\(\) returned a str"):
        remember(Garbage(), None, None, None, "")


def test_a_buffer_holds_at_least_one():
    with pytest.raises(InvalidInputError, match="capacity"):
        StampedBuffer(0)
