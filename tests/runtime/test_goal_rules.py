"""What a goal leads to, for every state that the simulation may be in."""

import sys

import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import EpisodeStatus
from engram.runtime.goal_rules import BeginEpisode, GoalRequest, GoalRules, JoinEpisode, SimulatedTasks

RULES = GoalRules(check_instructions=True, tasks=SimulatedTasks())
ANY_WORDS = GoalRules(check_instructions=False, tasks=SimulatedTasks())


def status(state="running", task="reach", episode=4):
    return EpisodeStatus(1, "r", episode, task, "move to the red cube", 3, state)


def test_words_of_the_running_task_join_its_episode():
    plan = RULES.plan(GoalRequest("open the drawer"), status(task="open_drawer"), stopped=False)
    assert plan == JoinEpisode(4)


@pytest.mark.parametrize("now", [None, status("succeeded"), status("failed"), status("idle", "", 0)])
def test_without_a_running_episode_the_words_decide_which_task_is_begun(now):
    assert RULES.plan(GoalRequest("Open the drawer."), now, stopped=False) == BeginEpisode("open_drawer")


def test_words_of_another_task_than_the_running_one_begin_that():
    assert RULES.plan(GoalRequest("open the drawer"), status(task="reach"), stopped=False) == BeginEpisode(
        "open_drawer"
    )


def test_words_of_no_task_are_refused_with_examples():
    with pytest.raises(InvalidInputError, match="no task fits 'make coffee'; for example: "):
        RULES.plan(GoalRequest("make coffee"), status("succeeded"), stopped=False)


def test_a_task_that_is_named_is_begun_if_the_words_fit_it():
    assert RULES.plan(GoalRequest("open the drawer", "open_drawer"), status(), stopped=False) == BeginEpisode(
        "open_drawer"
    )
    with pytest.raises(InvalidInputError, match="fits no wording"):
        RULES.plan(GoalRequest("make coffee", "open_drawer"), None, stopped=False)
    with pytest.raises(UnknownNameError, match=r"unknown task 'brew'; .*valid: "):
        RULES.plan(GoalRequest("make coffee", "brew"), None, stopped=False)


def test_an_episode_that_is_over_is_refused_and_the_newest_or_next_is_joined():
    with pytest.raises(InvalidInputError, match="episode 3 is over: the newest is episode 4"):
        RULES.plan(GoalRequest("open the drawer", episode=3), status(), stopped=False)
    assert RULES.plan(GoalRequest("open the drawer", episode=5), status(), stopped=False) == JoinEpisode(5)
    drawer = status(task="open_drawer")
    assert RULES.plan(GoalRequest("open the drawer", episode=4), drawer, stopped=False) == JoinEpisode(4)


def test_without_a_check_any_words_join_what_runs_or_begin_the_current_task_again():
    assert ANY_WORDS.plan(GoalRequest("make coffee"), status(), stopped=False) == JoinEpisode(4)
    assert ANY_WORDS.plan(GoalRequest("make coffee"), status("failed"), stopped=False) == BeginEpisode("")


@pytest.mark.parametrize("rules", [RULES, ANY_WORDS])
def test_nothing_begins_while_the_robot_is_stopped(rules):
    with pytest.raises(InvalidInputError, match="release it first with engram release"):
        rules.plan(GoalRequest("open the drawer"), status(), stopped=True)


@pytest.mark.parametrize("field", ["instruction", "task"])
def test_longer_words_than_people_say_are_no_request(field):
    words = {"instruction": "open the drawer", "task": ""}
    GoalRequest(**words | {field: "x" * 1000})
    with pytest.raises(InvalidInputError, match=f"{field}: 1001 characters, expected at most 1000"):
        GoalRequest(**words | {field: "x" * 1001})


def test_a_module_that_the_launch_did_not_name_is_not_imported():
    """``this`` prints a poem when it is imported: it must not even be looked for."""
    sys.modules.pop("this", None)
    own = GoalRules(True, SimulatedTasks(("examples.task:LiftCube",)))
    with pytest.raises(UnknownNameError, match=r"unknown task 'this:Zen'; .*valid: a shipped name, examples.task:Li"):
        own.plan(GoalRequest("open the drawer", "this:Zen"), status(), stopped=False)
    plan = own.plan(GoalRequest("open the drawer"), status(task="this:Zen"), stopped=False)
    assert plan == BeginEpisode("open_drawer")  # the status names the running task, from the network, too
    plan = own.plan(GoalRequest("lift the red cube"), status(task="examples.task:LiftCube"), stopped=False)
    assert plan == JoinEpisode(4)
    assert "this" not in sys.modules
