"""Experts of the memory tasks move so that a policy can imitate them (docs/decisions/0011)."""

from dataclasses import dataclass

import numpy as np
import pytest

from engram.sim.experts import make_expert
from engram.sim.experts.base import CLEARANCE_M, Expert, down_on
from engram.sim.experts.drawer import HELD_FRACTION
from engram.sim.experts.simple import BUTTON_TOP_M
from engram.sim.tasks.memory.buttons import ON_MARK_M, CountPresses, StopCube
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import ExpertRunner


@dataclass
class Seen:
    """One control step: height of the tool and of its goal [m], the action, whether the gripper is closed, and presses
    so far."""

    tool: float
    goal: float
    forward: float
    down: float
    grip: bool
    held: bool
    presses: int


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


def watched(world: MujocoWorld, task: str, seed: int) -> list[Seen]:
    """Run the expert once, to success."""
    seen: list[Seen] = []

    def make(name: str, world: MujocoWorld) -> Expert:
        expert = make_expert(name, world)
        act = expert.act

        def noted() -> np.ndarray:
            action = act()
            presses = world.task.presses if isinstance(world.task, CountPresses) else 0
            goal = float(expert.waypoint().position[2])
            tool, held = float(world.tool_pose().position[2]), world.gripper_fraction() > HELD_FRACTION
            forward, down, grip = float(action[0]), float(action[2]), bool(action[-1] > 0)
            seen.append(Seen(tool, goal, forward, down, grip, held, presses))
            return action

        expert.act = noted  # type: ignore[method-assign]
        return expert

    assert ExpertRunner(world, make)(task, seed).oracle_success
    return seen


@pytest.mark.parametrize("task", ["seq_push_buttons", "count_presses"])
def test_a_press_aims_well_below_the_button(world: MujocoWorld, task: str) -> None:
    last = watched(world, task, 0)[-1]
    assert last.goal < BUTTON_TOP_M - 0.01


@pytest.mark.parametrize("task", ["shell_touch", "remember_color", "match_color"])
def test_a_touch_aims_well_below_the_top(world: MujocoWorld, task: str) -> None:
    last = watched(world, task, 0)[-1]
    top = world.task.option_height_m  # type: ignore[union-attr]
    assert last.goal < top - 0.01


def test_a_button_is_held_down_for_a_moment_before_the_next(world: MujocoWorld) -> None:
    low = "".join("v" if step.tool < BUTTON_TOP_M else " " for step in watched(world, "seq_push_buttons", 2))
    presses = low.split()
    assert len(presses) >= 2 and all(len(steps) >= 2 for steps in presses[:2])


def test_a_button_that_came_up_too_early_is_not_pressed_again_for_the_same_press(world: MujocoWorld) -> None:
    world.reset("count_presses", 0)
    task = world.task
    assert isinstance(task, CountPresses)
    for travel, pressing, leaving in ((0.008, "count", ""), (0.001, "", "count")):
        world.set_joint("count", travel)
        task.newly_pressed(world)
        assert (task.pressing, task.leaving) == (pressing, leaving)


def test_the_fingers_rise_well_between_two_presses_of_one_button(world: MujocoWorld) -> None:
    seen = watched(world, "count_presses", 1)
    assert seen[-1].presses == 3
    for presses in (1, 2):
        assert max(step.tool for step in seen if step.presses == presses) > BUTTON_TOP_M + 0.06


def test_the_one_press_of_stop_cube_shows_over_several_steps(world: MujocoWorld) -> None:
    seen = watched(world, "stop_cube", 0)
    assert all(step.down < -0.1 for step in seen[-7:])
    assert abs(seen[-9].down) < 0.05  # until then it waits
    assert isinstance(world.task, StopCube)
    assert abs(world.task.oracle_passing()[1]) < ON_MARK_M / 2  # as much time to be early as to be late


def test_who_lets_go_of_a_drawer_pushes_it_on(world: MujocoWorld) -> None:
    steps = watched(world, "reopen_drawer", 0)
    opening = [step for step in steps if step.held and not step.grip]
    assert opening[0].forward > 0.2


def goal_m(aside: float, height: float) -> float:
    """Return how high above a thing fingers aim that are so far aside of it and shall come to ``height`` [m]."""
    return float(down_on(np.array([aside, 0.0, 0.06]), np.zeros(3), height).position[2])


@pytest.mark.parametrize("height", [CLEARANCE_M, 0.08])
def test_who_waits_above_a_thing_stays_above_it_when_pushed_aside(height: float) -> None:
    assert min(goal_m(aside, height) for aside in np.arange(0.0, 0.06, 0.001)) == height


def test_who_comes_down_on_a_thing_does_so_over_it() -> None:
    heights = [goal_m(aside, -0.015) for aside in (0.01, 0.026, 0.05)]
    assert heights == pytest.approx([-0.015, CLEARANCE_M / 2, CLEARANCE_M])
