"""The memory-demanding tasks: laws that all of them keep, and the verdicts of each."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.pipeline import CommandPipeline
from engram.sim.env import TabletopEnv
from engram.sim.experts import EXPERTS, MEMORY_EXPERTS, Expert, RandomCueExpert, make_expert
from engram.sim.experts.base import Waypoint
from engram.sim.experts.memory.intercept import InterceptExpert
from engram.sim.props import TUNNEL_HALF_M
from engram.sim.scene import CUBE_HALF_M
from engram.sim.tasks import MEMORY_TASKS, SUITES, TASKS, UNSEEN_TASKS, expand, get_task, with_options
from engram.sim.tasks.memory.base import PALETTE
from engram.sim.tasks.memory.drawers import SHUT_M, ReopenDrawer
from engram.sim.tasks.memory.intercept import CATCH_X_M, TUNNEL_X_M
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import ExpertRunner, evaluate_experts

SCRIPTED = MEMORY_TASKS | UNSEEN_TASKS
SHOWN_FIRST = [name for name in SCRIPTED if get_task(name).show_steps]
"""Tasks whose cue is shown while the arm is parked, before anything else."""


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


class Believer:
    """Makes experts that take ``cue`` for the truth."""

    def __init__(self, cue: int) -> None:
        self.cue = cue

    def __call__(self, task: str, world: MujocoWorld) -> Expert:
        expert = make_expert(task, world)
        expert.belief = self.cue
        return expert


class Driver:
    """Steps a world without cameras by actions."""

    def __init__(self, world: MujocoWorld) -> None:
        self.world, self.pipeline = world, CommandPipeline(world.kinematics, world.robot)

    def act(self, action: np.ndarray) -> None:
        self.world.advance(self.pipeline.step_action(self.world.joint_state(), action).command)


def test_every_task_has_an_expert_and_no_wording_means_two_tasks() -> None:
    assert MEMORY_EXPERTS.keys() == SCRIPTED.keys()
    assert not EXPERTS.keys() & MEMORY_EXPERTS.keys()
    words = [w for name in SUITES["all"] for t in [get_task(name)] for w in (*t.instructions, *t.held_out_instructions)]
    assert len(words) == len(set(words)) == 8 * len(SUITES["all"])


@pytest.mark.parametrize("task", SCRIPTED)
def test_of_all_beliefs_only_the_truth_succeeds(world: MujocoWorld, task: str) -> None:
    """So whoever guesses, without memory, is right once in ``cues``: the law behind every chance level."""
    seed = 1
    world.reset(task, seed)
    cues, truth = world.task.cues, world.task.oracle_cue
    right = [cue for cue in range(cues) if ExpertRunner(world, Believer(cue))(task, seed).oracle_success]
    assert right == [truth]


@pytest.mark.parametrize("task", SCRIPTED)
def test_same_seed_same_commands_bit_for_bit(world: MujocoWorld, task: str) -> None:
    first, second = ExpertRunner(world)(task, 7), ExpertRunner(MujocoWorld(WorldConfig(profile="none")))(task, 7)
    np.testing.assert_array_equal(first.commands, second.commands)
    assert first.oracle_success
    assert second.oracle_success


@pytest.mark.parametrize("task", SCRIPTED)
def test_every_cue_is_drawn(world: MujocoWorld, task: str) -> None:
    """60 seeds miss one of 3 cues with a chance of 3 * (2/3)^60 = 8e-11, one of 6 with 1e-4."""
    assert {drawn(world, task, seed) for seed in range(60)} == set(range(world.task.cues))


def drawn(world: MujocoWorld, task: str, seed: int) -> int:
    world.reset(task, seed)
    return world.task.oracle_cue


@pytest.mark.parametrize("task", SHOWN_FIRST)
def test_whatever_it_is_told_the_arm_stays_at_home_until_the_cue_is_gone(world: MujocoWorld, task: str) -> None:
    name = with_options(task, delay=4)
    world.reset(name, 0)
    home, driver, rng = world.tool_pose().position, Driver(world), np.random.default_rng(0)
    push = np.append(rng.uniform(-1, 1, 6), 1.0)
    steps = 0
    while world.task.parked:
        driver.act(push)
        steps += 1
        np.testing.assert_allclose(world.tool_pose().position, home, atol=2e-3)
        assert world.gripper_fraction() < 0.01
    assert 4 <= steps <= world.task.show_steps + 4
    driver.act(np.array([0, 0, 0, 0, 0, 0, -1.0]))  # nothing has piled up that would move the arm now
    np.testing.assert_allclose(world.tool_pose().position, home, atol=2e-3)


@pytest.mark.parametrize("task", SCRIPTED)
def test_the_delay_is_what_the_name_says(world: MujocoWorld, task: str) -> None:
    def decides_at(delay: int) -> int:
        world.reset(with_options(task, delay=delay), 2)
        driver, expert, steps = Driver(world), make_expert(task, world), 0
        while not world.task.deciding:
            driver.act(expert.act())
            steps += 1
        return steps

    assert decides_at(9) - decides_at(2) == 7
    assert get_task(with_options(task, delay=9)).max_steps - get_task(with_options(task, delay=2)).max_steps == 7


@pytest.mark.parametrize("task", SCRIPTED)
def test_with_the_most_alternatives_the_expert_still_succeeds(world: MujocoWorld, task: str) -> None:
    name = with_options(task, alternatives=SCRIPTED[task].most, delay=0)
    assert ExpertRunner(world)(name, 3).oracle_success
    assert world.task.k == SCRIPTED[task].most


@pytest.mark.parametrize("task", SCRIPTED)
def test_a_wrong_choice_is_final(world: MujocoWorld, task: str) -> None:
    world.reset(task, 5)
    wrong = (world.task.oracle_cue + 1) % world.task.cues
    ran = ExpertRunner(world, Believer(wrong))(task, 5)
    outcome = world.oracle_outcome()
    assert (outcome.failed, outcome.over, outcome.success) == (True, True, False)
    assert ran.steps < world.task.max_steps  # the episode ends there
    driver, expert = Driver(world), make_expert(task, world)
    for _ in range(3):
        driver.act(expert.act())
    assert not world.oracle_outcome().success


class Chaser(InterceptExpert):
    """Sees the present only: waits over the middle lane and goes for the cube when it shows."""

    def waypoint(self) -> Waypoint:
        if self.world.oracle_pose("parcel").position[0] < TUNNEL_X_M - TUNNEL_HALF_M[0] + CUBE_HALF_M:
            return super().waypoint()
        return Waypoint(np.array([CATCH_X_M, self.task.lanes[1], 0.08]), grip=0.0)


def test_who_waits_to_see_the_cube_comes_too_late_for_the_other_lanes(world: MujocoWorld) -> None:
    lanes, caught = [], []
    for seed in range(6):
        caught.append(ExpertRunner(world, lambda task, world: Chaser(world))("intercept_grab", seed).oracle_success)
        lanes.append(world.task.oracle_cue)
    assert not any(got for got, lane in zip(caught, lanes, strict=True) if lane != 1)
    assert set(lanes) >= {0, 2}


def test_other_colours_come_into_play(world: MujocoWorld) -> None:
    assert get_task("remember_color:first_color=3").options == ("cube_yellow", "cube_purple", "cube_orange")
    assert get_task("remember_color:first_color=7").options == ("cube_pink", "cube_black", "cube_red")
    assert get_task("put_block_back").color("red") == PALETTE["red"]
    assert get_task("put_block_back:first_color=2").color("red") == PALETTE["blue"]
    assert ExpertRunner(world)("remember_color:first_color=3,delay=0", 3).oracle_success
    painted = [world.model.geom(world.model.body(body).geomadr[0]).rgba[:3] for body in world.task.options]
    np.testing.assert_allclose(painted, [PALETTE[color] for color in ("yellow", "purple", "orange")], atol=1e-6)


@pytest.mark.parametrize("seed", [9, 14, 17, 23, 35])
def test_a_drawer_is_let_go_of_well_within_what_counts_as_shut(world: MujocoWorld, seed: int) -> None:
    """On these of the first 40 seeds an expert that lets go once the drawer counts as shut does so later than this."""
    world.reset("reopen_drawer:delay=0", seed)
    driver, expert, task = Driver(world), make_expert("reopen_drawer:delay=0", world), world.task
    assert isinstance(task, ReopenDrawer)
    expert.reset()
    action = expert.act()
    while task.stage == "before" or action[-1] > 0.5:
        driver.act(action)
        action = expert.act()
    assert world.oracle_joint(task.drawers[task.oracle_cue]) < SHUT_M / 2


@pytest.mark.parametrize("task", ["shell_touch", "put_block_back", "intercept_grab", "reopen_drawer"])
def test_pebbles_change_nothing_but_the_view(world: MujocoWorld, task: str) -> None:
    """They lie apart from one another and beside all else, and the expert does, bit for bit, what it does without."""
    name = with_options(task, distractors=8, delay=0)
    with_them = ExpertRunner(world)(name, 4)
    assert with_them.oracle_success
    spots = np.array([world.oracle_pose(body).position for body in world.task.pebbles])
    np.testing.assert_array_equal(np.abs(spots[:, 1]) > 0.31, True)
    apart = np.linalg.norm(spots[:, None] - spots[None], axis=-1) + np.eye(8)
    assert (len(spots), apart.min() > 0.04) == (8, True)
    np.testing.assert_array_equal(with_them.commands, ExpertRunner(world)(with_options(task, delay=0), 4).commands)


@pytest.mark.render
def test_pebbles_are_in_sight() -> None:
    seeing = MujocoWorld(WorldConfig(image_size=64))
    views = [seeing.reset(with_options("shell_touch", distractors=n or None), 0).camera("front").color for n in (0, 6)]
    seeing.close()
    assert (views[0] != views[1]).any(axis=-1).sum() > 12  # 6 of some 2 pixels each, at least


def test_names_carry_options_and_suites_stand_for_their_tasks() -> None:
    task = get_task("shell_touch:delay=20,alternatives=4")
    assert (task.config.delay, task.k, task.name) == (20, 4, "shell_touch")
    assert with_options("shell_touch", delay=20, alternatives=4) == "shell_touch:delay=20,alternatives=4"
    assert with_options("reach", delay=None, alternatives=None) == "reach"
    assert expand(("memory", "reach")) == (*MEMORY_TASKS, "reach")
    assert expand(("tabletop",)) == tuple(TASKS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "shell_touch:speed=3",
            "'speed=3' is no option; valid: delay, alternatives, first_color, distractors = whole number",
        ),
        ("shell_touch:delay=-1", "'delay=-1' is no option"),
        ("shell_touch:alternatives=7", r"alternatives=7, expected 2\.\.4"),
        ("shell_touch:first_color=9", r"first_color: 9, expected 0\.\.8"),
        ("shell_touch:distractors=11", r"distractors: 11, expected 0\.\.10"),
        ("touch_unseen:kinds=4", r"TouchUnseenConfig\.kinds: 4, expected 1\.\.3"),
        ("place_unseen:kinds=1", "'kinds=1' is no option"),
        ("place_unseen:alternatives=10", r"alternatives=10, expected 2\.\.9"),
        ("reach:delay=3", "reach takes no options"),
    ],
)
def test_wrong_options_are_named_with_the_valid_ones(name: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        get_task(name)


def test_an_unknown_task_lists_those_of_all_suites() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown task 'shell_tuch'; did you mean 'shell_touch'.*reach"):
        get_task("shell_tuch:delay=3")


def test_the_environment_takes_the_options() -> None:
    env = TabletopEnv("shell_touch", obs_type="state", delay=3, alternatives=2)
    env.reset(seed=0)
    assert (env.world.task.config.delay, env.world.task.k) == (3, 2)
    assert env._max_episode_steps == env.world.task.max_steps
    env.close()
    env = TabletopEnv("touch_unseen", obs_type="state", kinds=1)
    env.reset(seed=0)
    assert {thing.split()[1] for thing in env.world.task.things} == {"cube"}
    env.close()


def test_guessing_is_worth_its_chance_and_an_expert_nearly_always_succeeds() -> None:
    """40 guesses among 2 succeed 8 to 32 times but for a chance of 1e-4."""
    task = ("remember_color:alternatives=2,delay=0",)
    guessed = evaluate_experts(task, episodes=40, progress=False, guess=True)
    assert 8 <= guessed.per_task[task[0]].successes <= 32
    assert evaluate_experts(task, episodes=5, progress=False).mean.rate == 1.0


def test_a_guesser_leaves_markovian_tasks_to_their_experts(world: MujocoWorld) -> None:
    assert ExpertRunner(world, RandomCueExpert(np.random.default_rng(0)))("reach", 0).oracle_success
