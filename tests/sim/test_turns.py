"""A policy drives by turns, and the expert labels: DAgger."""

import json
from pathlib import Path

import numpy as np
import pytest

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import ActionChunk, MemoryTokens, Observation
from engram.sim.experts.turns import PolicyTurns, TurnConfig
from engram.sim.record import RecordConfig, record, record_episode
from engram.sim.world import MujocoWorld, WorldConfig

LABEL = np.zeros(7)


class Upwards(Policy):
    """Four rows of rising, two of which count; tells each chunk by its number in the gripper's place."""

    version = "upwards"

    def __init__(self, space: str = "ee_delta") -> None:
        self.space, self.seen, self.asked, self.begun = space, 0, 0, []

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        self.begun.append((instruction, seed))

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        self.seen += 1

    def act(self) -> ActionChunk:
        self.asked += 1
        rows = np.tile([0, 0, 0.5, 0, 0, 0, self.asked / 100], (4, 1))
        rows[:, 0] = np.arange(4) / 10  # which row
        return ActionChunk(0, 0, self.space, rows, 0.1, 2, self.version)

    def load_weights(self, path: Path, version: str) -> None:
        raise NotImplementedError


def driven(turns: PolicyTurns, observation: Observation, steps: int, seed: int) -> np.ndarray:
    turns.begin("lift", seed)
    return np.array([turns.drive(observation, LABEL) for _ in range(steps)])


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="fast", image_size=16))


@pytest.mark.render
def test_turns_have_the_lengths_they_are_given_and_begin_with_new_chunks(world: MujocoWorld) -> None:
    policy = Upwards()
    turns = PolicyTurns(policy, TurnConfig(policy_steps=(3, 3), expert_steps=(4, 4)))
    observation = world.reset("reach", 100_000)
    done = driven(turns, observation, 70, seed=1)
    mine = done[:, 2] > 0
    lengths = np.diff(np.flatnonzero(np.diff(mine, prepend=not mine[0])))
    assert {int(n) for n in lengths[mine[0] :: 2]} | {int(n) for n in lengths[not mine[0] :: 2]} == {3, 4}
    assert policy.seen == 70  # it sees every step, whoever drives
    np.testing.assert_allclose(done[mine][:6, 0], [0, 0.1, 0, 0, 0.1, 0])  # two rows of a chunk; a turn asks anew
    np.testing.assert_array_equal(
        done, driven(turns, observation, 70, seed=1) * (1 - mine[:, None]) + done * mine[:, None]
    )
    assert policy.begun == [("lift", 1), ("lift", 1)]
    begins = {bool(driven(turns, observation, 1, seed)[0, 2]) for seed in range(8)}
    assert begins == {True, False}


@pytest.mark.render
def test_labels_are_the_experts_where_the_policy_went(world: MujocoWorld) -> None:
    alone = record_episode(world, "reach", 100_001, None, 1)
    policy = Upwards()
    turns = PolicyTurns(policy, TurnConfig(policy_steps=(6, 6), expert_steps=(20, 20)))
    helped = record_episode(world, "reach", 100_001, None, 1, turns=turns)
    assert alone is not None and helped is not None and policy.begun == [(alone[0]["task"], 100_001)]
    np.testing.assert_array_equal(alone[0]["action"], helped[0]["action"])  # the same state, the same label
    height = np.array([frame["observation.state"][2] for frame in helped])
    labels = np.array([frame["action"] for frame in helped])
    assert height.max() > max(frame["observation.state"][2] for frame in alone) + 0.05  # the policy took it there
    assert (labels[height > height.max() - 0.02][:, 2] < 0).all()  # the expert says: down
    assert helped[-1]["next.success"]
    assert policy.asked and policy.seen == len(helped)


@pytest.mark.render
def test_only_relative_motions_can_take_turns(world: MujocoWorld) -> None:
    with pytest.raises(InvalidInputError, match="upwards drives in 'joint_position', expected 'ee_delta'"):
        driven(PolicyTurns(Upwards("joint_position")), world.reset("reach", 100_000), 60, seed=0)


@pytest.mark.render
def test_the_recorder_names_who_drove(tmp_path: Path) -> None:
    config = RecordConfig(str(tmp_path / "driven"), tasks=("reach",), episodes=1, workers=1, driver="base")
    record(config)
    (entry,) = map(json.loads, (tmp_path / "driven/meta/engram_episodes.jsonl").read_text().splitlines())
    assert entry["driver"].startswith("engram_vla-")


def test_a_driver_that_is_not_there_is_named_before_anything_is_recorded(tmp_path: Path) -> None:
    config = RecordConfig(str(tmp_path / "x"), tasks=("reach",), episodes=1, driver="nobody")
    with pytest.raises(UnknownNameError, match=r"'nobody'.*base"):
        record(config)
    assert not list(tmp_path.iterdir())
