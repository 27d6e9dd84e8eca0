"""The goal that runs, put together from topics."""

from __future__ import annotations

from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, EpisodeStatus, Verdict
from engram.viewer.running_goal import NOTHING, RunningGoal
from tests.viewer.scenes import SECOND_NS


def status(second: float, state: str = "running", episode: int = 3, step: int = 0) -> EpisodeStatus:
    return EpisodeStatus(int(second * SECOND_NS), "robot0", episode, "", "stack <it>", step, state)


def verdict(second: float, outcome: str, probability: float = 0.9, episode: int = 3, progress: float = 0.4) -> Verdict:
    return Verdict(int(second * SECOND_NS), episode, "memory", outcome, probability, progress, "<it> is beside")


def begun() -> RunningGoal:
    goal = RunningGoal()
    assert NOTHING in goal.html()
    goal.became(status(100.0))
    return goal


def test_it_tells_who_acts_for_how_long_how_near_it_is_and_what_the_memory_says() -> None:
    goal = begun()
    assert "waits for its first step" in goal.html()
    goal.executed(3, "base-<1>", 105 * SECOND_NS)
    goal.judged(verdict(107.0, DENIED, 0.1))
    shown = goal.html()
    for words in ('Episode 3, running: &quot;stack &lt;it&gt;&quot;', "the policy acts", "weights base-&lt;1&gt;, 7 s",
                  "progress 40 %", "width:40%",
                  "memory: not reached (confidence 90 %): &lt;it&gt; is beside"):  # fmt: skip
        assert words in shown
    assert "step" not in shown  # a robot's status does not count them
    goal.executed(3, "hold:no_command", 108 * SECOND_NS)
    assert "the robot holds</span> no_command, 8 s" in goal.html()
    goal.executed(3, "human:page", 109 * SECOND_NS)
    assert "a person drives</span> page, 9 s" in goal.html()


def test_how_it_ended_stays_until_the_next_one_begins() -> None:
    goal = begun()
    goal.executed(3, "base-1", 101 * SECOND_NS)
    goal.judged(verdict(104.0, CONFIRMED))
    goal.became(status(105.0, "succeeded"))
    assert "succeeded" in goal.html() and "before the end, memory: reached (confidence 90 %)" in goal.html()
    assert "the policy acts" not in goal.html()
    goal.became(status(106.0, episode=4))
    goal.judged(verdict(106.1, DENIED, 0.1))  # of the goal before, late
    goal.executed(3, "base-1", 106 * SECOND_NS)
    assert "memory" not in goal.html() and "waits for its first step" in goal.html()


def test_another_judge_whose_word_counts_is_shown_beside_the_memory() -> None:
    goal = begun()
    assert "classifier: reached" in goal.html("classifier: reached (confidence 95 %)")
    goal.judged(verdict(101.0, CANNOT_TELL, float("nan"), progress=float("nan")))
    assert "progress" not in goal.html()
    assert "classifier: reached (counts); memory: cannot tell" in goal.html("classifier: reached")
    assert "counts" not in goal.html("memory: not reached")  # of a second ago


def test_of_an_episode_that_was_under_way_it_is_not_known_how_long() -> None:
    goal = RunningGoal()
    goal.became(status(50.0, step=12))
    goal.executed(3, "base-1", 51 * SECOND_NS)
    assert "step 12" in goal.html() and " s<" not in goal.html()
