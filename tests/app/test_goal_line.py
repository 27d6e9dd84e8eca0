"""What ``engram do`` shows while it waits."""

import io

from engram.app.goal_line import CLEAR, GoalLine
from engram.runtime.goal_words import Standing


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line_on(stream):
    now = [0.0]
    return now, GoalLine(stream, lambda: now[0])


def test_a_terminal_has_one_line_that_is_rewritten():
    stream = Terminal()
    now, line = line_on(stream)
    line.tick()
    for now[0], progress in ((0.1, 0.1), (7.0, 0.4)):
        line.take(Standing("acting", progress, "base-1"))
        line.tick()
    now[0] = 7.3
    line.tick()  # nothing has changed
    line.end()
    first, last = "0 s: waits for its first step", "7 s: the policy acts, progress 40 %, weights base-1"
    assert stream.getvalue() == f"{CLEAR}{first}{CLEAR}{last}{CLEAR}"


def test_the_line_is_no_longer_than_the_terminal_is_wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    _, line = line_on(stream)
    line.take(Standing("acting", 0.5, "v" * 100))
    line.tick()
    assert len(stream.getvalue().removeprefix(CLEAR)) == 39


def test_a_file_gets_a_line_for_each_change_of_phase():
    stream = io.StringIO()
    now, line = line_on(stream)
    for now[0], phase, progress in ((1.0, "acting", 0.1), (2.0, "acting", 0.2), (3.0, "holding", 0.2)):
        line.take(Standing(phase, progress, "base-1"))
        line.tick()
    line.end()
    assert stream.getvalue().splitlines() == [
        "1 s: the policy acts, progress 10 %, weights base-1",
        "3 s: the robot holds, progress 20 %",
    ]
