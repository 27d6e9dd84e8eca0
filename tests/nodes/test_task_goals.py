"""The time that a goal's limit is of."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from engram.nodes import task_goals
from engram.nodes.task_goals import TaskGoals

pytestmark = pytest.mark.ros


def test_the_limit_of_a_goal_counts_the_time_in_which_the_machine_was_suspended(monkeypatch):
    """A clock that stands still meanwhile would let a goal of a minute go on after a night."""
    monkeypatch.setattr(task_goals, "ActionServer", lambda *_, **__: None)
    config = SimpleNamespace(
        robot_id="r", episodes="goal", goal_timeout_s=60.0, status_timeout_s=30.0, check_instructions=False, tasks="",
        verdict="oracle", writers_of=lambda topic: ("safety_node",),
    )  # fmt: skip
    clock_of_the_node = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=time.time_ns()))
    nothing = lambda *_, **__: None  # noqa: E731
    node: Any = SimpleNamespace(
        config=config, get_clock=lambda: clock_of_the_node, get_parameter=lambda name: SimpleNamespace(value=False),
        create_client=nothing, serve=nothing, every=nothing, subscribe=nothing, async_group=None, health=None,
        check_stamp=None, get_namespace=lambda: "/",
    )  # fmt: skip
    goals = TaskGoals(node, SimpleNamespace(ended=nothing), nothing)  # type: ignore[arg-type]
    goal = goals.book.accept(task_goals.GoalRequest("go", "", 0), 0.0, None, nothing)[0]
    night_ns, clock = 8 * 3600 * 10**9, time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda kind: clock(kind) + night_ns * (kind == time.CLOCK_BOOTTIME))
    assert goals.book.duration_s(goal) == pytest.approx(8 * 3600, abs=60)
