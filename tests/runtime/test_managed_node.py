"""One managed node, without ROS and by the test's own clock: transitions, silence, loss and the end of a hang."""

import signal

import pytest

from engram.runtime.managed_node import ManagedNode
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig
from tests.runtime.scripted_node import Said, ScriptedNode

pytestmark = pytest.mark.usefixtures("marks")
LOOK_S = 0.5


class Desk:
    """A managed node at which its manager looks twice a second."""

    def __init__(self, **config):
        self.node, self.said, self.now = ScriptedNode(), Said(), 100.0
        self.managed = ManagedNode(self.node, LifecycleManagerConfig(**config), self.said)
        self.asked_at = []  # when a transition was asked for

    def run(self, seconds: float, *, may_activate: bool = True):
        for _ in range(round(seconds / LOOK_S)):
            self.now += LOOK_S
            self.managed.watch(self.now)
            before = len(self.node.journal)
            self.managed.advance("active", may_activate, self.now)
            self.asked_at += [self.now] * (len(self.node.journal) - before)

    @property
    def steps(self) -> list[str]:
        return [step for _, step in self.node.journal]


@pytest.fixture
def active():
    desk = Desk()
    desk.run(3.0)
    assert desk.managed.state == "active"
    return desk


def test_it_is_configured_and_activated_when_it_may_be():
    desk = Desk()
    assert desk.managed.state == "absent"
    desk.run(5.0, may_activate=False)
    assert (desk.steps, desk.managed.condition) == (["configure"], "inactive")
    desk.run(1.0)
    assert (desk.steps, desk.managed.condition) == (["configure", "activate"], "active")
    assert desk.said.infos == [
        "memory_node: configure took 0.5 s, now inactive",
        "memory_node: activate took 0.5 s, now active",
    ]


def test_a_transition_that_fails_is_tried_three_times_with_a_pause_and_again_after_a_restart():
    desk = Desk(max_attempts=3, retry_s=2.0)
    desk.node.fails = True
    desk.run(20.0)
    assert desk.asked_at == [101.0, 103.5, 106.0]
    assert (desk.managed.condition, desk.managed.failed) == ("failed", True)
    assert desk.said.errors[0].endswith("configure failed; the node's own log says why (attempt 1 of 3)")
    assert desk.said.errors[2].endswith("(attempt 3 of 3); it is tried again every 30 s")
    desk.node.there = False
    desk.run(0.5)
    assert desk.managed.condition == "absent"
    desk.node.there, desk.node.fails = True, False
    desk.run(4.0)
    assert (desk.managed.condition, desk.managed.note) == ("active", "")


def test_a_node_that_failed_so_often_is_tried_again_every_thirty_seconds():
    """The disk was full for a minute: nobody has to ask for it."""
    desk = Desk(max_attempts=3, retry_s=2.0)
    desk.node.fails = True
    desk.run(40.0)
    assert desk.asked_at == [101.0, 103.5, 106.0, 136.5]
    assert (desk.managed.condition, desk.managed.failed) == ("failed", True)
    desk.node.fails = False
    desk.run(26.0)
    assert desk.managed.condition == "failed"
    desk.run(4.0)
    assert (desk.managed.condition, desk.managed.note, desk.managed.failed) == ("active", "", False)


def test_a_node_that_goes_on_failing_is_not_told_of_each_time_and_what_else_fails_is():
    desk = Desk(max_attempts=2, retry_s=2.0)
    desk.node.fails = True
    desk.run(600.0)
    assert len(desk.asked_at) > 15
    assert [line.partition("says why")[2] for line in desk.said.errors] == [
        " (attempt 1 of 2)",
        " (attempt 2 of 2); it is tried again every 30 s",
    ]
    desk.managed.note = "did not answer for 16 s"
    desk.run(90.0)
    assert [line.partition("says why")[2] for line in desk.said.errors[2:]] == ["; it is tried again every 30 s"]


def test_whoever_asks_for_a_node_that_failed_does_not_wait_for_thirty_seconds():
    desk = Desk(max_attempts=3, retry_s=2.0)
    desk.node.fails = True
    desk.run(10.0)
    desk.node.fails, desk.managed.attempts = False, 0  # as by ~/startup
    desk.run(2.0)
    assert desk.managed.condition == "active"


def test_a_node_in_a_slow_transition_does_not_answer_and_is_waited_for():
    desk = Desk(slow_after_s=5.0, silent_after_s=10.0)
    desk.run(0.5)
    desk.node.answers = False
    desk.run(60.0)
    assert (desk.managed.state, desk.managed.condition) == ("unconfigured", "configure")
    assert desk.said.warnings == ["memory_node: configure takes longer than 5 s"]
    assert not desk.said.errors
    desk.node.answers = True
    desk.node.finish()
    desk.run(0.5)
    assert (desk.managed.state, desk.managed.note) == ("inactive", "")


def test_a_question_without_answer_is_given_up_after_two_polls_and_asked_again():
    """It went to a process that has died: the one that was started in its place never got it."""
    desk = Desk(poll_period_s=0.5)
    desk.node.answers = False
    desk.run(2.5)
    assert [question.dropped for question in desk.node.questions] == [True, False]


def test_a_transition_that_never_reached_the_node_is_asked_for_again():
    """Two answers that are more than 1 s younger than the request say that nothing has moved."""
    desk = Desk()
    desk.node.loses_transitions = True
    desk.run(3.5)
    assert desk.asked_at == [101.0, 103.5]
    desk.node.loses_transitions = False
    desk.run(5.0)
    assert desk.managed.state == "active"


def test_a_node_that_was_restarted_is_brought_up_again(active):
    active.node.state = "unconfigured"
    active.run(4.0)
    assert active.said.warnings == ["memory_node was restarted"]
    assert active.steps == ["configure", "activate"] * 2
    assert active.managed.state == "active"


def test_silence_is_reported_after_ten_seconds_and_a_hang_ended_once_after_fifteen(active, holder):
    active.node.answers = False
    active.run(10.0)
    assert active.managed.state == "active"
    active.run(1.0)
    assert active.managed.state == "silent" and active.managed.hangs
    assert active.said.warnings == ["memory_node is silent, it was active"]
    active.run(4.0)
    assert holder.poll() is None
    active.run(20.0)
    assert holder.wait(60) == -signal.SIGKILL
    assert not active.managed.hangs  # it has ended, whatever DDS still thinks
    assert active.said.errors == [f"memory_node did not answer for 16 s; killed its process {holder.pid}"]


def test_a_node_of_another_machine_is_left_to_a_person(active):
    active.node.answers = False
    active.run(20.0)
    assert active.managed.hangs
    assert active.managed.note.endswith("no process of this machine is known: end and start it by hand")
    active.node.answers = True
    active.run(6.0)
    assert active.managed.state == "active"


def test_a_node_that_is_stuck_in_a_transition_hangs_too():
    desk = Desk(stuck_after_s=30.0, slow_after_s=100.0)
    desk.run(0.5)
    desk.node.answers = False
    desk.run(30.0)
    assert not desk.said.errors
    desk.run(1.0)
    assert len(desk.said.errors) == 1 and desk.managed.changing == "configure"


def test_a_process_that_stands_still_is_silent_though_dds_gave_it_up(active, holder):
    active.node.there = False
    active.run(1.0)
    assert active.managed.state == "silent" and active.managed.hangs
    holder.kill()
    holder.wait()
    active.run(0.5)
    assert active.managed.state == "absent" and not active.managed.hangs


def test_a_manager_that_stood_still_blames_nobody(active):
    active.now += 100.0
    active.managed.heard(active.now)
    active.node.answers = False
    active.run(9.0)
    assert active.managed.state == "active"


def test_an_optional_node_is_not_wanted_until_it_comes():
    node = ScriptedNode()
    managed = ManagedNode(node, LifecycleManagerConfig(), Said(), optional=True)
    node.there = False
    managed.watch(100.0)
    assert managed.not_wanted
    node.there = True
    for now in (101.0, 102.0):
        managed.watch(now)
    assert not managed.not_wanted
