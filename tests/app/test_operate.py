"""Commands for running nodes, where no node runs."""

import pytest

from engram.app import cli

pytestmark = pytest.mark.ros


def test_a_stop_that_no_safety_node_answers_says_that_nothing_was_stopped(capsys):
    assert cli.main(["stop", "--namespace", "nobody", "--timeout-s", "0.2"]) == 1
    error = capsys.readouterr().err
    assert "service safety/stop: not within 0.2 s: nothing was stopped" in error and "emergency stop" in error


def test_a_release_that_no_safety_node_answers_tells_of_no_stop(capsys):
    assert cli.main(["release", "--namespace", "nobody", "--timeout-s", "0.2"]) == 1
    assert "stopped" not in capsys.readouterr().err
