"""The tasks whose target no camera sees any more: what the words name, and how the things lie."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.sim.experts import make_expert
from engram.sim.props import CLOTH_HALF_M, CUP_HEIGHT_M
from engram.sim.tasks import UNSEEN_TASKS, example_instructions, task_class, task_for, with_options
from engram.sim.tasks.memory.base import PALETTE
from engram.sim.tasks.memory.unseen import KINDS
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import ExpertRunner


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


def named(world: MujocoWorld, task: str, seed: int, words: str = "") -> str:
    """Return what the words of an episode call the target."""
    world.reset(task, seed, words)
    return world.task.colors[world.task.targets["thing"]]


@pytest.mark.parametrize("task", UNSEEN_TASKS)
def test_the_target_is_drawn_among_all_colours_and_kinds(world: MujocoWorld, task: str) -> None:
    """200 draws miss one of 27 with a chance of 27 * (26/27)^200 = 1.4 %; these seeds miss none."""
    drawn = {named(world, with_options(task, alternatives=9), seed) for seed in range(200)}
    assert drawn == set(task_class(task).slot_words)


@pytest.mark.parametrize("task", UNSEEN_TASKS)
@pytest.mark.parametrize("alternatives", [2, 3, 9])
def test_the_words_mean_one_thing_and_things_lie_apart(world: MujocoWorld, task: str, alternatives: int) -> None:
    for seed in range(20):
        thing = named(world, with_options(task, alternatives=alternatives), seed)
        scene = world.task
        assert len(set(scene.things)) == len(scene.places) == alternatives
        assert (scene.things[scene.oracle_cue], thing in world.instruction) == (thing, True)
        body = scene.targets["thing"]
        np.testing.assert_allclose(world.oracle_pose(body).position[:2], scene.places[scene.oracle_cue])
        color = world.model.geom(world.model.body(body).geomadr[0]).rgba[:3]
        np.testing.assert_allclose(color, PALETTE[thing.split()[0]], atol=1e-6)
        apart = np.linalg.norm(scene.places[:, None] - scene.places[None], axis=-1) + np.eye(alternatives)
        assert apart.min() >= 0.076


def test_neither_colour_nor_kind_alone_tells_what_is_meant(world: MujocoWorld) -> None:
    for seed in range(30):
        color, kind = named(world, "touch_unseen", seed).split()
        others = [thing.split() for i, thing in enumerate(world.task.things) if i != world.task.oracle_cue]
        assert color in {other[0] for other in others}
        assert kind in {other[1] for other in others}


def test_options_say_which_kinds_and_colours_there_are(world: MujocoWorld) -> None:
    for seed in range(10):
        named(world, "touch_unseen:kinds=1", seed)
        assert {thing.split()[1] for thing in world.task.things} == {"cube"}
        named(world, "touch_unseen:first_color=6", seed)
        assert {thing.split()[0] for thing in world.task.things} <= {"cyan", "pink", "black"}


def test_words_of_ones_own_bring_the_thing_onto_the_same_table(world: MujocoWorld) -> None:
    named(world, "touch_unseen", 4)
    places, cue, before = world.task.places, world.task.oracle_cue, list(world.task.things)
    assert "cyan cup" not in before
    assert named(world, "touch_unseen", 4, "touch the cyan cup in the dark") == "cyan cup"
    np.testing.assert_array_equal(world.task.places, places)
    assert world.task.things == [*before[:cue], "cyan cup", *before[cue + 1 :]]
    assert world.oracle_pose(world.task.targets["thing"]).position[2] == 0.0
    other = (cue + 1) % len(before)
    assert named(world, "touch_unseen", 4, f"tap the {before[other]} that went out of view") == before[other]
    assert (world.task.things, world.task.oracle_cue) == (before, other)
    assert named(world, "touch_unseen", 4, "Touch the red block in the dark.") == "red cube"  # a block is a cube
    with pytest.raises(InvalidInputError, match=r"fits no wording.*with red cube, red cup, red button, green cube"):
        world.reset("touch_unseen", 4, "touch the red plate in the dark")


def test_no_pebble_has_the_colour_of_the_target(world: MujocoWorld) -> None:
    """The geometric detector calls a pebble a button, so that the words would mean it as well."""
    for seed in range(20):
        color = named(world, "touch_unseen:distractors=10,delay=0", seed).split()[0]
        for pebble in world.task.pebbles:
            painted = world.model.geom(world.model.body(pebble).geomadr[0]).rgba[:3]
            assert not np.allclose(painted, PALETTE[color], atol=1e-6)


def test_the_hand_travels_above_the_highest_thing(world: MujocoWorld) -> None:
    """To a button of 1.6 cm among cups of 7 cm: 6 cm above the cups, not above the button."""
    seed = next(s for s in range(40) if "button" in named(world, "touch_unseen", s))
    assert max(world.task.tops_m) == CUP_HEIGHT_M > 3 * KINDS["button"].top_m
    way = make_expert("touch_unseen", world).waypoint().position
    np.testing.assert_allclose(way, [*world.task.places[world.task.oracle_cue], CUP_HEIGHT_M + 0.06])
    assert ExpertRunner(world)("touch_unseen", seed).oracle_success


@pytest.mark.parametrize("alternatives", [3, 9])
def test_the_cloth_covers_every_button_but_not_the_cube(world: MujocoWorld, alternatives: int) -> None:
    for seed in range(20):
        world.reset(f"place_unseen:alternatives={alternatives},delay=0", seed)
        assert world.oracle_pose("cloth").position[2] < 0  # at first it is away
        task = world.task
        task.hide(world)
        middle = world.oracle_pose("cloth").position[:2]
        assert (np.abs(task.places - middle) + 0.02 < CLOTH_HALF_M[:2]).all()
        assert max(task.tops_m) < 2 * CLOTH_HALF_M[2]
        assert world.oracle_pose("cube").position[0] + 0.03 < middle[0] - CLOTH_HALF_M[0]


def test_an_example_of_a_task_fills_its_slots_with_its_own_words() -> None:
    said = example_instructions(("engram.sim.tasks.memory.unseen:TouchUnseen",))
    assert said[0] == "touch the red cube although it is out of view"
    assert task_for(said[0]) == "touch_unseen"
    assert "stack the red cube on the green cube" in said
