"""What becomes of the goal at hand, with a clock of this test."""

import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, EpisodeStatus, Verdict
from engram.runtime.goal_book import GoalBook, GoalBookConfig
from engram.runtime.goal_rules import BeginEpisode, GoalRequest, GoalRules, JoinEpisode, SimulatedTasks

SECOND = 10**9


class World:
    """A book, its clocks, and what it tells."""

    def __init__(self, monkeypatch, *, own_episodes: bool) -> None:
        self.now_ns, self.wall_s = 0, 0.0
        self.set_ns = 0  # by how much the node's clock was set since the beginning
        self.ends: list[tuple[str, str]] = []
        self.told: list[EpisodeStatus] = []
        monkeypatch.setattr("engram.runtime.goal_book.time.monotonic", lambda: self.wall_s)
        config = GoalBookConfig("robot0", own_episodes, timeout_s=60.0, status_timeout_s=30.0)
        rules = GoalRules(False, SimulatedTasks())
        self.outcomes: list[tuple[int, float]] = []
        self.book = GoalBook(
            config,
            rules,
            lambda: self.now_ns + self.set_ns,
            lambda: self.now_ns,
            self.told.append,
            lambda *told: self.outcomes.append(told),
        )

    def accept(self, words: str = "stack", timeout_s: float = 0.0):
        return self.book.accept(GoalRequest(words), timeout_s, None, self.ends.append)

    def status(self, episode: int, state: str, *, truncated: bool = False) -> None:
        status = EpisodeStatus(self.now_ns, "robot0", episode, "stack", "own words", 3, state, truncated=truncated)
        self.book.on_status(status)


@pytest.fixture
def sim(monkeypatch):
    return World(monkeypatch, own_episodes=False)


@pytest.fixture
def robot(monkeypatch):
    return World(monkeypatch, own_episodes=True)


@pytest.mark.parametrize(
    ("state", "truncated", "outcome"),
    [("succeeded", False, "succeeded"), ("failed", False, "failed"), ("failed", True, "timeout")],
)
def test_the_goal_ends_with_its_episode(sim, state, truncated, outcome):
    goal, plan = sim.accept()
    assert plan == BeginEpisode("")
    sim.book.join(goal, 4)
    sim.status(4, "running")
    assert sim.book.instruction_for(sim.book.status) == "stack"
    sim.status(4, state, truncated=truncated)
    assert sim.ends == [(outcome, "judged by the simulator")] and sim.book.goal is None


@pytest.mark.parametrize("set_s", [-3600, 3600])
def test_a_goal_takes_as_long_as_it_takes_when_the_clock_is_set(robot, set_s):
    goal, _ = robot.accept(timeout_s=10.0)
    robot.book.join(goal, 1)
    robot.now_ns, robot.set_ns = 9 * SECOND, set_s * SECOND
    robot.book.check_limits(cancelled=False)
    assert (robot.book.goal, robot.book.duration_s(goal)) == (goal, 9.0)
    robot.now_ns += 2 * SECOND
    robot.book.check_limits(cancelled=False)
    assert robot.ends == [("timeout", "not done after 10 s")]


def test_no_episode_has_the_number_of_one_before_also_in_another_process(robot):
    """The policy, the memory and what is kept on disk take an episode's number for the episode."""
    robot.set_ns = 10**18
    numbers = [robot.accept()[1].episode for _ in range(3)]
    robot.now_ns += 60 * SECOND
    assert numbers == [10**9, 10**9 + 1, 10**9 + 2] and robot.accept()[1].episode == 10**9 + 60
    robot.set_ns = 0  # the clock is set back
    assert robot.accept()[1].episode == 10**9 + 61


def test_a_goal_is_judged_also_after_the_clock_was_set_back(robot):
    goal, _ = robot.accept(timeout_s=10.0)
    robot.book.join(goal, 1)
    for at_s, set_s, taken in ((1, 0, True), (2, -3600, True), (3, -3600, True), (2.5, -3600, False)):
        robot.now_ns, robot.set_ns = max(robot.now_ns, int(at_s * SECOND)), set_s * SECOND
        stamp_ns = int((at_s + set_s) * SECOND)
        robot.book.on_verdict(Verdict(stamp_ns, 1, "memory", DENIED, 0.1))
        assert (goal.verdict.stamp_ns == stamp_ns) == taken


def test_how_near_a_goal_came_is_told_where_it_was_carried_out(robot):
    def carried_out(end, progress=None):
        goal, plan = robot.accept()
        robot.book.join(goal, plan.episode)
        if progress is not None:
            robot.now_ns += SECOND
            robot.book.on_verdict(Verdict(robot.now_ns, plan.episode, "memory", DENIED, 0.9, progress, "far", ()))
        end()
        told, robot.outcomes = robot.outcomes, []
        return [outcome for episode, outcome in told if episode == plan.episode]

    def wait():
        robot.now_ns += 61 * SECOND
        robot.book.check_limits(cancelled=False)

    assert carried_out(lambda: robot.book.told("succeeded")) == [1.0]
    assert carried_out(lambda: robot.book.told("failed"), progress=0.6) == [0.3]
    assert carried_out(wait, progress=0.5) == [0.25] and carried_out(wait) == [0.0]
    assert carried_out(lambda: robot.book.lose("camera_lost: front"), progress=0.6) == []
    assert carried_out(lambda: robot.book.check_limits(cancelled=True)) == []
    assert carried_out(robot.accept) == []  # a newer goal preempts it


def test_an_episode_that_ended_before_its_goal_was_tied_to_it_ends_the_goal(sim):
    goal, _ = sim.accept()
    sim.status(4, "succeeded")
    sim.book.join(goal, 4)
    assert sim.ends == [("succeeded", "judged by the simulator")]


def test_a_newer_goal_preempts_and_a_late_answer_to_the_older_is_passed_over(sim):
    first, _ = sim.accept()
    second, _ = sim.accept("reach")
    sim.book.join(first, 4)
    assert sim.ends == [("preempted", "a newer goal came")]
    assert sim.book.goal is second and second.episode is None


def test_the_limit_is_of_the_nodes_clock_and_silence_of_the_wall_clock(sim):
    goal, _ = sim.accept(timeout_s=5.0)
    sim.book.join(goal, 4)
    sim.now_ns, sim.wall_s = 5 * SECOND, 30.0
    sim.book.check_limits(cancelled=False)
    assert not sim.ends
    sim.wall_s = 31.0
    sim.book.check_limits(cancelled=False)
    assert sim.ends == [("failed", "link_lost: no task/status for 31 s: the simulation does not run")]
    sim.accept(timeout_s=5.0)
    sim.now_ns += 5 * SECOND + 1
    sim.book.check_limits(cancelled=False)
    assert sim.ends[-1] == ("timeout", "not done after 5 s")


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -1.0])
def test_a_time_limit_that_is_none_is_refused_and_the_goal_before_goes_on(robot, timeout_s):
    goal, _ = robot.accept()
    with pytest.raises(InvalidInputError, match=r"timeout_s: .*, expected 0 \(the node's own\) or"):
        robot.accept(timeout_s=timeout_s)
    assert robot.book.goal is goal and not robot.ends


def test_a_robots_goal_is_an_episode_of_its_own(robot):
    goal, plan = robot.accept()
    assert plan == JoinEpisode(1)
    robot.book.join(goal, plan.episode)
    assert robot.book.on_step(robot.told[-1]) is goal and goal.steps == 1
    robot.book.check_limits(cancelled=True)
    assert robot.ends == [("stopped", "cancelled by the client")]
    assert [(s.episode, s.state, s.step) for s in robot.told] == [(1, "running", 0), (1, "stopped", 1)]
    assert robot.book.halted(1) and not robot.book.halted(2)


def test_a_person_cancels_a_goal_whoever_gave_it_and_nothing_is_learnt_of_it(robot, sim):
    assert robot.book.told("cancel") == (False, "no goal is being carried out")
    for world in (robot, sim):
        goal, _ = world.accept()
        world.book.join(goal, 1)
        assert world.book.told("cancel") == (True, "'stack': cancelled")
        assert (world.ends, world.outcomes) == ([("stopped", "a person cancelled it")], [])
        assert world.book.goal is None and world.book.halted(1)
    assert robot.told[-1].state == "stopped"
    robot.accept()  # it has no episode yet
    assert robot.book.told("cancel")[0] and robot.book.goal is None


def test_a_stopped_robot_takes_no_goal(robot):
    robot.book.stopped = True
    with pytest.raises(InvalidInputError):
        robot.accept()
    assert robot.book.goal is None


def test_a_goal_that_loses_its_joints_fails_with_the_reason_and_moves_nothing_more(robot):
    goal, plan = robot.accept()
    robot.book.join(goal, plan.episode)
    robot.book.lose("joints_lost: no valid joint_states for 5.1 s")
    assert robot.ends == [("failed", "joints_lost: no valid joint_states for 5.1 s")]
    assert (robot.told[-1].state, robot.book.halted(plan.episode)) == ("stopped", True)
    robot.book.lose("joints_lost again")  # without a goal: nothing
    assert len(robot.ends) == 1


def judge(world, tenths, outcome=CONFIRMED, episode=1):
    """Let the memory judge the goal at ``tenths`` of a second."""
    verdict = Verdict(tenths * SECOND // 10, episode, "memory", outcome, 0.9, 0.5, "the red cube in the bin")
    world.book.on_verdict(verdict)


def test_a_robots_goal_ends_when_its_success_was_confirmed_long_enough(robot):
    goal, plan = robot.accept()
    robot.book.join(goal, plan.episode)
    looks = (CONFIRMED, CONFIRMED, DENIED, CONFIRMED, CONFIRMED)
    for tenths, outcome in enumerate(looks):
        robot.now_ns = tenths * SECOND // 10
        judge(robot, tenths, outcome)
    assert not robot.ends  # one look denied it: it begins again
    judge(robot, 5)
    assert robot.ends == [("succeeded", "judged by memory: the red cube in the bin")]
    assert robot.told[-1].state == "succeeded"  # what the memory and the experience learn from


def say(world, tenths, source, outcome):
    world.now_ns = tenths * SECOND // 10
    world.book.on_verdict(Verdict(world.now_ns, 1, source, outcome, 0.9, 0.5, "why"))


def test_where_the_memory_cannot_tell_a_classifier_is_believed_and_else_the_memory(robot):
    goal, plan = robot.accept()
    robot.book.join(goal, plan.episode)
    for tenths in range(10):
        say(robot, tenths, "memory", DENIED)
        say(robot, tenths, "classifier", CONFIRMED)
    assert not robot.ends and goal.verdict.source == "memory"
    assert robot.book.judged == "memory: not reached (confidence 10 %): why"
    for tenths in range(10, 13):
        say(robot, tenths, "classifier", CONFIRMED)
        say(robot, tenths, "memory", CANNOT_TELL)
    assert robot.book.judged == "classifier: reached (confidence 90 %): why"
    say(robot, 13, "classifier", CONFIRMED)
    assert robot.book.judged == ""
    assert robot.ends == [("succeeded", "judged by classifier: why")]


def test_in_simulation_it_is_counted_what_was_taken_for_reached_and_is_not(sim):
    def carried_out(episode, outcomes, state):
        goal, _ = sim.accept()
        sim.book.join(goal, episode)
        for _ in range(4):
            sim.now_ns += SECOND // 10
            for outcome in outcomes:
                sim.book.on_verdict(Verdict(sim.now_ns, episode, "memory", outcome, 0.9))
        sim.status(episode, state)
        return sim.book.oracle_mistaken

    assert carried_out(1, [CONFIRMED], "succeeded") == ""
    assert carried_out(2, [DENIED], "failed") == "0 of 1 that the simulator saw fail"
    assert carried_out(3, [CONFIRMED], "failed") == "1 of 2 that the simulator saw fail"
    assert carried_out(4, [], "failed") == "1 of 2 that the simulator saw fail"  # nobody judged it


def test_of_a_memory_that_fell_silent_nothing_counts(robot):
    goal, plan = robot.accept()
    robot.book.join(goal, plan.episode)
    say(robot, 0, "memory", DENIED)
    for tenths in range(1, 10):
        say(robot, tenths, "classifier", CONFIRMED)
    assert not robot.ends  # it may be late
    for tenths in range(21, 25):
        say(robot, tenths, "classifier", CONFIRMED)
    assert robot.ends == [("succeeded", "judged by classifier: why")]


def test_what_is_judged_of_another_episode_or_before_the_goal_ends_nothing(robot):
    robot.now_ns = 10 * SECOND
    goal, plan = robot.accept()
    judge(robot, 101)  # it is being begun
    robot.book.join(goal, plan.episode)
    for tenths in (50, 60, 70):
        judge(robot, tenths)
    for tenths in (110, 120, 130):
        judge(robot, tenths, episode=2)
    for tenths in (10**6, 10**6 + 1, 10**6 + 2):  # nobody has seen that yet
        judge(robot, tenths)
    robot.now_ns = 20 * SECOND
    for tenths in (110, 120, 130):  # that was long ago
        judge(robot, tenths)
    assert not robot.ends and goal.verdict is None


def test_a_goal_that_took_too_long_tells_what_was_wrong_at_the_end(robot):
    goal, plan = robot.accept(timeout_s=5.0)
    robot.book.join(goal, plan.episode)
    robot.now_ns = 6 * SECOND
    judge(robot, 59, DENIED)
    robot.book.check_limits(cancelled=False)
    assert robot.ends == [("timeout", "not done after 5 s; judged by memory: the red cube in the bin")]
    assert robot.told[-1].state == "failed"  # a rate of the skill that counts successes alone would always be 1


@pytest.mark.parametrize(
    ("outcome", "tenths", "cancelled"),
    [(CANNOT_TELL, 59, False), (DENIED, 59, True), (DENIED, 1, False), (None, 0, False)],
)
def test_what_was_not_seen_lately_or_was_called_off_is_no_failure(robot, outcome, tenths, cancelled):
    goal, plan = robot.accept(timeout_s=5.0)
    robot.book.join(goal, plan.episode)
    robot.now_ns = 6 * SECOND
    if outcome is not None:
        judge(robot, tenths, outcome)
    robot.book.check_limits(cancelled=cancelled)
    assert robot.told[-1].state == "stopped"


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_person_says_how_a_robots_goal_ended_whatever_the_memory_says(robot, outcome):
    assert robot.book.told(outcome) == (False, "no goal is being carried out")
    goal, plan = robot.accept()
    robot.book.join(goal, plan.episode)
    judge(robot, 0, DENIED if outcome == "succeeded" else CONFIRMED)
    done, words = robot.book.told(outcome)
    assert done and words.endswith(f": {outcome}") and goal.instruction in words
    assert robot.ends == [(outcome, "judged by a person")]
    assert (robot.told[-1].state, robot.book.goal) == (outcome, None)


def test_in_simulation_nobody_overrules_the_simulator(sim):
    goal, _ = sim.accept()
    sim.book.join(goal, 1)
    done, words = sim.book.told("succeeded")
    assert not done and "the simulator judges" in words and not sim.ends


def test_in_simulation_the_simulator_ends_the_goal_and_the_verdict_is_its_progress(sim):
    goal, _ = sim.accept()
    sim.book.join(goal, 1)
    for tenths in range(9):
        judge(sim, tenths)
    assert not sim.ends and goal.verdict.progress == 0.5
