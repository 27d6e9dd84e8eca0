"""Lives of a safety node in which things stall, get lost and come in any order: its commands keep the limits."""

import random

import numpy as np
import pytest

from engram.benchmarks.faults_limits import CommandJudge
from engram.core.types import HumanAction
from tests.core.gantry import GANTRY, joints
from tests.runtime.test_safety_session import Desk

TICK_S, REPORT_S, CONTROL_S = 0.005, 0.02, 0.1
QUEUE = 2  # joint states that wait for a node which is busy
BY_HAND_S = 1.2  # after so long without a command a person moves the arm
FAR = 0.25  # no command is further from where the gantry really is [m]


class Life:
    """A gantry that reports its joints, and a session that now and then does not get to run, or to hear of them."""

    def __init__(self, seed: int, *, simulated: bool) -> None:
        self.random, self.desk = random.Random(seed), Desk(lockstep=False, simulated=simulated)
        self.judge = CommandJudge(GANTRY, CONTROL_S)
        self.time_s = self.desk.now_s
        self.x = self.sensor_error = 0.0
        self.hand = self.random.choice((-0.3, 0.3))  # m/s
        self.episode, self.running = 1, True
        self.queue: list = []
        self.due = dict.fromkeys(("report", "watch", "answer", "chunk"), self.time_s)
        self.silent_until = self.stalled_until = self.time_s
        self.judged, self.judged_episode, self.last, self.found = 0, 1, None, []
        self.desk.status()

    def run(self, seconds: float) -> list:
        """Return every limit that a command did not keep."""
        for _ in range(round(seconds / TICK_S)):
            self.time_s = round(self.time_s + TICK_S, 4)
            self.befall()
            self.report()
            if self.time_s >= self.stalled_until:
                self.turn()
        return self.found

    def befall(self) -> None:
        if self.random.random() < 0.002:
            self.silent_until = self.time_s + self.random.uniform(0.1, 1.5)
        if self.random.random() < 0.002:
            self.stalled_until = self.time_s + self.random.uniform(0.05, 1.8)
        if self.last is not None and self.random.random() < 0.001:
            self.sensor_error = self.random.choice((0.0, 0.0, 0.5))

    @property
    def by_hand(self) -> bool:
        """Whether a person moves the arm: nobody drives it, and it got no command for a while."""
        human = self.desk.session.human
        driven = (self.running and not self.desk.session.pipeline.filter.stopped) or (
            human is not None and human.active
        )
        return not driven and self.last is not None and self.time_s - self.last.stamp_ns / 1e9 > BY_HAND_S

    def is_due(self, what: str, period_s: float) -> bool:
        if self.time_s < self.due[what]:
            return False
        self.due[what] = self.time_s + period_s
        return True

    def report(self) -> None:
        if not self.is_due("report", REPORT_S):
            return
        if self.by_hand:
            self.x = min(0.6, max(-0.6, self.x + self.hand * REPORT_S))
        elif self.desk.decisions:
            way = self.desk.decisions[-1].command.positions[0] - self.x
            self.x += float(np.clip(way, -REPORT_S, REPORT_S))
        if self.time_s >= self.silent_until:
            stamp_ns = round(self.time_s * 1e9) - self.random.randrange(5_000_000)
            self.queue = [*self.queue, joints(self.x + self.sensor_error, stamp_ns=stamp_ns)][-QUEUE:]

    def turn(self) -> None:
        """Let the session do what is due, in any order."""
        self.desk.now_s, session = self.time_s, self.desk.session
        if self.random.random() < 0.006:
            self.release()
        waiting, self.queue = self.queue, []
        things = [(session.on_joints, one) for one in waiting]
        things += [(call,) for name, call, period_s in (
            ("watch", session.watch, CONTROL_S), ("answer", session.watch_answer, 0.1 * CONTROL_S)
        ) if self.is_due(name, period_s)]  # fmt: skip
        if self.running and session.joints is not None and self.is_due("chunk", self.random.choice((0.1, 0.2, 1.0))):
            things.append((self.answer, session.joints.stamp_ns))
        chance = self.random.random()
        if chance < 0.002:
            things.append((session.stop, "by hand"))
        elif chance < 0.006:
            things.append((self.begin_or_end,))
        elif chance < 0.008:
            things.append((self.take_over,))
        self.random.shuffle(things)
        for call, *arguments in things:
            call(*arguments)
            self.judge_all()

    def answer(self, stamp_ns: int) -> None:
        rows = [self.action()] * self.random.randrange(1, 5)
        self.desk.chunk(stamp_ns, *rows, episode=self.episode)

    def action(self) -> np.ndarray:
        return np.array([self.random.uniform(-1, 1), 0, 0, 0, 0, 0, -1.0])

    def release(self) -> None:
        """Release as a person does, who has mended the sensor."""
        self.sensor_error, self.queue = 0.0, []
        self.desk.session.release()

    def take_over(self) -> None:
        human = HumanAction(round(self.time_s * 1e9), "somebody", True, "ee_delta", self.action())
        self.desk.session.on_human(human)

    def begin_or_end(self) -> None:
        self.running = not self.running
        self.episode += self.running
        self.desk.status(round(self.time_s * 1e9), self.episode, "running" if self.running else "succeeded")

    def judge_all(self) -> None:
        done = list(zip(self.desk.decisions, self.desk.episodes, strict=True))
        for decision, episode in done[self.judged :]:
            command = decision.command
            passed_s = CONTROL_S if self.last is None else (command.stamp_ns - self.last.stamp_ns) / 1e9
            if abs(command.positions[0] - self.x) > FAR:
                self.found.append(
                    (round(self.time_s, 3), decision.author, f"{command.positions[0]}, it is at {self.x}")
                )
            if episode != self.judged_episode or passed_s > BY_HAND_S:  # motion begins where the arm is
                self.judge.forget()
            elif self.last is not None and passed_s > 1.5 * CONTROL_S:
                self.judge.forget()  # the arm has come to rest at the last command
                for steps in (2, 1):
                    self.judge.command(
                        command.stamp_ns - round(steps * CONTROL_S * 1e9), self.last.positions, CONTROL_S
                    )
            self.judged_episode, self.last = episode, command
            found = self.judge.command(command.stamp_ns, command.positions, command.duration_s)
            self.found += [(round(self.time_s, 3), decision.author, one) for one in found]
        self.judged = len(done)


@pytest.mark.parametrize("simulated", [False, True])
def test_commands_keep_the_limits_whatever_stalls_gets_lost_or_comes_in_another_order(simulated):
    lives = [Life(seed, simulated=simulated) for seed in range(12)]
    found = {seed: life.run(30.0) for seed, life in enumerate(lives)}
    assert {seed: ones for seed, ones in found.items() if ones} == {}
    authors = {decision.author for life in lives for decision in life.desk.decisions}
    assert {"v", "human:somebody", "hold:silent", "hold:stopped", "hold:joints_lost"} <= authors
    assert sum(life.judged for life in lives) > 1000
