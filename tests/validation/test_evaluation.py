"""Counting, seeds and the instruction swap, with runners whose outcome is known beforehand."""

import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from engram.core.contracts import Policy, StepHook
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import ActionChunk, EpisodeResult, MemoryTokens, Observation
from engram.sim.experts import make_expert
from engram.sim.experts.base import Waypoint
from engram.sim.experts.simple import ReachExpert
from engram.sim.tasks.placement import above
from engram.sim.tasks.reach import HOVER_M, Reach
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import (
    ExpertRunner,
    HeldOutWords,
    evaluate,
    evaluate_checkpoint,
    evaluate_experts,
    evaluate_oracle_state,
    evaluate_swap,
    measure,
)


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


def odd_seeds_fail(task: str, seed: int, instruction: str = "", *, on_step: StepHook | None = None) -> EpisodeResult:
    """Succeeds on even seeds after seed + 1 steps."""
    return EpisodeResult(task, seed, "go", seed % 2 == 0, seed + 1, np.zeros((seed + 1, 8)))


def test_counts_by_hand() -> None:
    report = measure(odd_seeds_fail, "half", ("reach", "stack"), 5, progress=False)
    assert (report.per_task["reach"].successes, report.per_task["reach"].n) == (3, 5)
    assert report.mean.rate == pytest.approx(0.6)
    assert report.mean_steps["stack"] == pytest.approx((1 + 3 + 5) / 3)
    assert report.failures == {"reach": (1, 3), "stack": (1, 3)}
    assert json.loads(report.to_json())["per_task"]["reach"]["successes"] == 3
    assert report.table().title == "half, seeds 0 to 4 of each task"


def test_a_mean_over_no_success_is_null_in_json() -> None:
    report = measure(odd_seeds_fail, "none", ("reach",), 1, first_seed=1, progress=False)
    assert json.loads(report.to_json())["mean_steps"]["reach"] is None


@pytest.mark.parametrize(
    ("tasks", "episodes", "first_seed", "error", "message"),
    [
        (("juggle",), 1, 0, UnknownNameError, "unknown task 'juggle'"),
        ((), 1, 0, InvalidInputError, "at least one of each"),
        (("reach", "reach"), 1, 0, InvalidInputError, "reach named more than once"),
        (("reach",), 2, 99_999, InvalidInputError, "the rest is training data"),
    ],
)
def test_refuses_what_cannot_be_measured(tasks, episodes, first_seed, error, message) -> None:
    with pytest.raises(error, match=message):
        measure(odd_seeds_fail, "x", tasks, episodes, first_seed, progress=False)


class ExpertPolicy(Policy):
    """A policy that cheats: it asks the expert. It knows the contract's loop from the inside."""

    def __init__(self, world: MujocoWorld) -> None:
        self.world = world

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        self.expert = make_expert(self.world.oracle_outcome().task, self.world)

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        self.stamp_ns = observation.stamp_ns

    def act(self) -> ActionChunk:
        return ActionChunk(self.stamp_ns, 0, "ee_delta", self.expert.act()[None], 0.1, 1, self.version)

    def load_weights(self, path, version) -> None:
        raise NotImplementedError

    @property
    def version(self) -> str:
        return "expert"


def test_a_policy_that_acts_like_the_expert_does_what_the_expert_does(world: MujocoWorld) -> None:
    through_policy = evaluate(ExpertPolicy(world), world, ("reach", "press_button"), episodes=3, progress=False)
    experts = evaluate_experts(("reach", "press_button"), episodes=3, progress=False)
    assert through_policy.per_task == experts.per_task
    assert through_policy.mean_steps == experts.mean_steps


@pytest.mark.parametrize("option", [{"execute_steps": 2}, {"ensemble": True}, {"adaptive_m": 0.02}])
def test_a_policy_of_ones_own_replans_as_it_does(option: dict) -> None:
    with pytest.raises(InvalidInputError, match="not for mine:POLICY, which says itself how its chunks follow"):
        evaluate_checkpoint("mine:POLICY", ("reach",), episodes=1, **option)


@pytest.mark.parametrize(
    ("run", "where", "subject"),
    [
        (evaluate_experts, {}, "experts"),
        (evaluate_experts, {"world": "tabletop:mass=1.5", "guess": True}, "guessing experts, world tabletop:mass=1.5"),
        (evaluate_oracle_state, {}, "policy oracle_state"),
        (functools.partial(evaluate_checkpoint, "base"), {}, "policy engram_vla-"),
        (
            functools.partial(evaluate_checkpoint, "base"),
            {"world": "tabletop:brightness=0.8", "randomise_looks": True},
            ", world tabletop:brightness=0.8, drawn looks",
        ),
    ],
)
def test_a_report_names_its_seeds_and_its_world(run, where: dict, subject: str) -> None:
    report = run(("reach",), episodes=1, first_seed=31, **where)
    assert report.seeds == (31, 1) and subject in report.subject
    assert ("world" in report.subject) == ("world" in where)


class DeafReach(ReachExpert):
    """Reaches for a cube of its own choice, whatever was said."""

    def __init__(self, world: MujocoWorld, cube: str) -> None:
        super().__init__(world)
        self.cube = cube

    def waypoint(self) -> Waypoint:
        return Waypoint(above(self.world.oracle_pose(self.cube).position, HOVER_M), grip=0.0)


def test_swap_tells_a_listener_from_a_deaf_runner(world: MujocoWorld) -> None:
    listener = ExpertRunner(world)

    def deaf(task: str, seed: int, instruction: str = "", *, on_step: StepHook | None = None) -> EpisodeResult:
        world.reset(task, seed)
        usual = world.task.targets["color"]
        return ExpertRunner(world, lambda _, w: DeafReach(w, usual))(task, seed, instruction, on_step=on_step)

    hears = evaluate_swap(listener, world, "listener", ("reach",), episodes=3, progress=False)
    assert [r["reach"].successes for r in (hears.unswapped, hears.swapped_goal)] == [3, 3]
    ignores = evaluate_swap(deaf, world, "deaf", ("reach",), episodes=3, progress=False)
    assert ignores.unswapped["reach"].successes == 3
    assert ignores.swapped_goal["reach"].successes == 0
    assert ignores.original_goal["reach"].successes == 3


def test_swap_refuses_tasks_without_a_colour(world: MujocoWorld) -> None:
    with pytest.raises(InvalidInputError, match=r"open_drawer: the words name no colour.*valid: reach, "):
        evaluate_swap(ExpertRunner(world), world, "x", ("open_drawer",), episodes=1, progress=False)


class Wordless(Reach):
    """A task of one's own that nobody gave held-out words."""

    held_out_instructions = ()


def test_a_task_without_held_out_words_is_named_before_the_first_episode(world: MujocoWorld) -> None:
    spec = f"{__name__}:Wordless"
    ran = SimpleNamespace(run_episode=lambda *_, **how: pytest.fail("an episode was run"))
    message = rf"held_out: {spec}: no held_out_instructions; .*; valid: reach, "
    with pytest.raises(InvalidInputError, match=message):
        evaluate(ExpertPolicy(world), world, ("reach", spec), episodes=1, runtime=ran, held_out=True, progress=False)


def test_held_out_words_name_the_goal_of_the_seed(world: MujocoWorld) -> None:
    said = HeldOutWords(world)("press_button", 5)
    world.reset("press_button", 5)
    drawn, color = dict(world.task.targets), world.task.colors[world.task.targets["color"]]
    assert said == f"give the {color} button a press"  # the second of two, 5 being odd
    world.reset("press_button", 5, said)
    assert world.task.targets == drawn
