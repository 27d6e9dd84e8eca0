"""examples/detector.py keeps the contract's laws, finds the red cube where it is, and is taken by name."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.runtime.factories import make_detector
from engram.runtime.record import RecordConfig, record
from engram.sim import MujocoWorld, WorldConfig
from examples.detector import RedThings
from tests.contracts.detector import DetectorContract

NAME = "examples.detector:RedThings"


@pytest.fixture(scope="module")
def world():
    made = MujocoWorld(WorldConfig(depth=True))
    yield made
    made.close()


def look(world, seed=0):
    frame = world.reset("reach", seed, "move above the red cube").camera("front")
    return frame, world.oracle_pose(world.task.targets["color"]).position


@pytest.mark.render
class TestRedThings(DetectorContract):
    @pytest.fixture(autouse=True)
    def seen(self, world):
        self.seen_frame, _ = look(world)

    def make(self):
        return RedThings()

    def frame(self):
        return self.seen_frame


@pytest.mark.render
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_red_cube_is_found_where_it_is(world, seed):
    frame, truth = look(world, seed)
    (found,) = make_detector(NAME).detect(frame).objects
    assert found.label == "red thing"
    assert np.linalg.norm(found.pose.position - truth) < 0.02
    assert found.color[0] > 2 * found.color[1]


@pytest.mark.render
def test_what_it_saw_is_recorded(tmp_path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    small = {"episodes": 1, "part_episodes": 1, "workers": 1, "image_size": 64, "noise": 0.0, "tail_steps": 1}
    config = RecordConfig(str(tmp_path / "red"), tasks=("reach",), reconstruction=True, detector=NAME, **small)
    report = record(config)
    dataset = LeRobotDataset(config.repo_id, root=report.root)
    assert dataset[report.frames - 1]["observation.memory.mask"].shape == (16,)


def test_a_detector_that_is_none_is_named():
    with pytest.raises(UnknownNameError, match="unknown detector 'geometrik'; did you mean 'geometric'"):
        make_detector("geometrik")
    with pytest.raises(InvalidInputError, match=r"detector .*LiftCube. is the class LiftCube, expected a Det"):
        make_detector("examples.task:LiftCube")
