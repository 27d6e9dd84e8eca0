"""A push moves the named object once, some centimetres, as its seed says."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import EpisodeResult, JointCommand
from engram.sim.pushes import Push, PushConfig, PushedRunner, PushedWorkcell
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import ExpertRunner

FIRST, LAST = PushConfig().steps


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


def stay(world: MujocoWorld) -> JointCommand:
    """Return the command that holds the arm where it is."""
    joints = world.joint_state()
    return JointCommand(joints.stamp_ns, joints.names, joints.positions, 0.1)


def pushed_way(world: MujocoWorld, seed: int, steps: int) -> tuple[Push, np.ndarray]:
    """Return the push, and where every cube was after each step (steps + 1, cubes, 2), the arm held still."""
    world.reset("pick_place", 5)
    push, cubes = Push(world, seed), world.task.scene.cubes
    where = lambda: [world.oracle_pose(cube).position[:2] for cube in cubes]  # noqa: E731
    way = [where()]
    for _ in range(steps):
        world.step(stay(world))
        push.after_step()
        way.append(where())
    return push, np.array(way)


def test_only_the_named_object_moves_after_its_step_and_some_centimetres(world: MujocoWorld) -> None:
    push, way = pushed_way(world, seed=1, steps=LAST + 10)
    named = world.task.scene.cubes.index(world.task.targets["color"])
    moved = np.linalg.norm(way - way[0], axis=-1)  # (steps, cubes)
    assert moved[: push.step + 1].max() < 1e-3
    assert 0.03 < moved[-1, named] < 0.1
    assert np.abs(moved[-1, [i for i in range(3) if i != named]]).max() < 1e-3
    assert (way[-1, named] - way[0, named]) @ push.velocity > 0.9 * moved[-1, named] * np.linalg.norm(push.velocity)


@pytest.mark.parametrize("task", ["reach", "push_to_mark", "pick_place", "stack"])
def test_nobody_has_arrived_before_the_push(world: MujocoWorld, task: str) -> None:
    for seed in range(10):
        closed: list[float] = []
        expert = ExpertRunner(world)
        result = expert(task, seed, on_step=lambda *_, closed=closed: closed.append(world.gripper_fraction()))
        assert result.steps > LAST
        assert task == "push_to_mark" or max(closed[:LAST]) < 0.5  # nothing is held yet


def test_step_and_direction_are_the_seeds(world: MujocoWorld) -> None:
    drawn = [(p.step, *p.velocity) for p in (Push(world, s) for s in (1, 1, 2))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {Push(world, s).step for s in range(200)} == set(range(FIRST, LAST + 1))


def test_a_stronger_push_moves_it_farther(world: MujocoWorld) -> None:
    ways = []
    for speed in (0.5, 1.3):
        world.reset("pick_place", 5)
        push = Push(world, 1, PushConfig(steps=(1, 1), speed_m_s=(speed, speed)))
        before = world.oracle_pose(world.task.targets["color"]).position[:2]
        for _ in range(10):
            world.step(stay(world))
            push.after_step()
        ways.append(np.linalg.norm(world.oracle_pose(world.task.targets["color"]).position[:2] - before))
    assert push.step == 1
    assert 0.005 < ways[0] < 0.5 * ways[1]


def test_a_task_without_a_cube_to_push_is_refused_with_those_that_have_one(world: MujocoWorld) -> None:
    def run(*_: object, **__: object) -> EpisodeResult:
        raise AssertionError("not reached")

    with pytest.raises(InvalidInputError, match=r"'open_drawer'.*valid: reach, push_to_mark, pick_place, stack"):
        PushedRunner(run, world, ("reach", "open_drawer"))


def test_the_pushed_workcell_pushes_as_the_runner_does_and_leaves_other_tasks_alone(world: MujocoWorld) -> None:
    def ways(pushed: PushedWorkcell | None, task: str) -> list[bytes]:
        stepped = pushed or world
        told: list[bytes] = []
        run = ExpertRunner(stepped)
        runner = run if pushed or task == "open_drawer" else PushedRunner(run, world, (task,))
        runner(task, 3, on_step=lambda *_: told.append(stepped.data.qpos.tobytes()))
        return told

    pushed = PushedWorkcell(WorldConfig(profile="none"))
    for task in ("pick_place", "open_drawer"):
        assert ways(pushed, task) == ways(None, task)
    undisturbed: list[bytes] = []
    ExpertRunner(world)("pick_place", 3, on_step=lambda *_: undisturbed.append(world.data.qpos.tobytes()))
    assert ways(pushed, "pick_place") != undisturbed
