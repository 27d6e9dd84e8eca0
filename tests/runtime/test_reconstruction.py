"""What leaves the cameras' view stays in the scene graph's tokens, and reaches dataset and policy."""

from pathlib import Path

import numpy as np
import pytest

from engram.core.context_rows import MEMORY_PREFIX as PREFIX
from engram.core.contracts import Policy
from engram.core.pipeline import CommandPipeline
from engram.core.types import ActionChunk
from engram.perception.embedding import default_text_encoder
from engram.runtime.loop import Runtime
from engram.runtime.reconstruction import SceneRecorder, features, make_perception
from engram.runtime.record import RecordConfig, record, record_episode
from engram.sim.experts import make_expert
from engram.sim.tasks.memory.unseen import TouchUnseen
from engram.sim.world import MujocoWorld, WorldConfig

TASK = "touch_unseen:delay=2"

pytestmark = pytest.mark.render


@pytest.fixture(scope="module")
def world():
    world = MujocoWorld(WorldConfig(depth=True))
    yield world
    world.close()


def place_of(thing: str, tokens: np.ndarray, place: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the place (3,) of the entry that is most like ``thing``."""
    likeness = tokens @ default_text_encoder().encode([thing])[0]
    return place[np.where(mask > 0, likeness, -1.0).argmax()]


def test_where_each_thing_is_stays_known_when_nothing_can_be_seen_any_more(world):
    scene = SceneRecorder(world.kinematics, world.robot)
    for seed in range(3):
        frames = record_episode(world, TASK, seed, None, 1, scene)
        last = frames[-2]  # of the last, the hand is on the block
        for camera in ("front", "wrist"):
            picture = last[f"observation.images.{camera}"].astype(float)
            assert picture.std((0, 1)).max() < 4.0  # nothing but a cap
        for thing, true in zip(world.task.things, world.task.places, strict=True):
            known = place_of(thing, last[f"{PREFIX}tokens"], last[f"{PREFIX}place"], last[f"{PREFIX}mask"])
            np.testing.assert_allclose(known[:2], true, atol=0.015)
        assert last[f"{PREFIX}age_s"][last[f"{PREFIX}mask"] > 0].min() > 0.2
        assert not frames[0][f"{PREFIX}age_s"][:3].any()
        assert {frame[f"{PREFIX}mask"].sum() for frame in frames} == {3}  # the things on the table, and nothing else


def test_a_dataset_holds_them_as_they_were(world, tmp_path: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    config = RecordConfig(str(tmp_path / "data"), tasks=(TASK,), episodes=1, workers=1, noise=0.0, reconstruction=True)
    report = record(config)
    dataset = LeRobotDataset(config.repo_id, root=report.root)
    expected = record_episode(
        world, TASK, config.first_seed, None, config.tail_steps, SceneRecorder(world.kinematics, world.robot)
    )
    assert len(dataset) == len(expected)
    for index in (0, len(dataset) - 1):
        for name in features():
            np.testing.assert_array_equal(dataset[index][name].numpy(), expected[index][name])


class Reader(Policy):
    """Goes blindly to where the tokens say that the named thing is: no picture, no truth."""

    version = "reader"

    def __init__(self, world: MujocoWorld) -> None:
        self.expert = make_expert(TASK, world)
        self.world = world

    def reset(self, instruction, episode=0, seed=0):
        self.episode, self.counts = episode, []
        self.thing = TouchUnseen.parse(instruction)[1]["thing"]

    def observe(self, observation, memory=None):
        self.observation, self.tokens = observation, memory

    def act(self):
        self.counts.append(int(self.tokens.mask.sum()))
        found = place_of(self.thing, self.tokens.tokens, self.tokens.place, self.tokens.mask)
        task = self.world.task
        task.places = np.tile(found[:2], (task.k, 1))  # what its expert goes by
        action = self.expert.act()
        return ActionChunk(self.observation.stamp_ns, self.episode, "ee_delta", action[None], 0.1, 1, "reader")

    def load_weights(self, path, version):
        raise NotImplementedError


def test_whoever_reads_the_tokens_succeeds_and_every_episode_begins_anew(world):
    detector, fresh_memory = make_perception()
    policy, pipeline = Reader(world), CommandPipeline(world.kinematics, world.robot)
    runtime = Runtime(world, policy, pipeline, detector=detector, fresh_memory=fresh_memory)
    for seed in range(3):
        assert runtime.run_episode(TASK, seed).oracle_success
        assert policy.counts[0] == 3  # nothing of the episode before
