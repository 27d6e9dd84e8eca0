"""Commands for running nodes, where no node runs."""

import pytest

from engram.app import cli, operate

pytestmark = pytest.mark.ros


def test_a_stop_that_no_safety_node_answers_says_that_nothing_was_stopped(capsys):
    assert cli.main(["stop", "--namespace", "nobody", "--timeout-s", "0.2"]) == 1
    error = capsys.readouterr().err
    assert "service safety/stop: not within 0.2 s: nothing was stopped" in error and "emergency stop" in error


def test_a_release_that_no_safety_node_answers_tells_of_no_stop(capsys):
    assert cli.main(["release", "--namespace", "nobody", "--timeout-s", "0.2"]) == 1
    assert "stopped" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--namespace", "a-b"], "--namespace: 'a-b', expected at most"),
        (["--timeout-s", "nan"], "--timeout-s: nan, expected a finite number of seconds above 0"),
        (["--domain", "999"], "domain 999: expected 0.."),
    ],
)
def test_a_stop_that_nobody_can_be_asked_for_names_the_emergency_stop(capsys, words, said):
    assert cli.main(["stop", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and "nothing was stopped, as far as is known. Use the emergency stop" in error


@pytest.mark.parametrize(("failure", "code"), [(RuntimeError("no context"), 1), (KeyboardInterrupt(), 130)])
def test_a_stop_that_fails_in_any_way_names_the_emergency_stop(capsys, monkeypatch, failure, code):
    def fails(_):
        raise failure

    monkeypatch.setattr(operate, "_client", fails)
    assert cli.main(["stop"]) == code
    assert "nothing was stopped, as far as is known. Use the emergency stop" in capsys.readouterr().err


def test_a_stop_that_is_refused_names_the_emergency_stop(capsys, monkeypatch):
    monkeypatch.setattr(operate, "_answer", lambda *_: (False, "not now"))
    assert cli.main(["stop"]) == 1
    assert "not now: nothing was stopped, as far as is known. Use the emergency stop" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["do", "reach"], ["judge", "failed"], ["cancel"], ["release"], ["promote"], ["rollback"], ["teleop"]]
)
def test_no_command_asks_in_a_namespace_that_can_be_none_or_for_a_time_without_end(capsys, words):
    assert cli.main([*words, "--namespace", "a-b"]) == 2
    assert f"engram {words[0]}: --namespace: 'a-b', expected" in capsys.readouterr().err
    assert cli.main([*words, "--timeout-s", "nan"]) == 2
    assert f"engram {words[0]}: --timeout-s: nan, expected" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["do", "w\udcfcrfel"], ["promote", "v\udcfc"], ["rollback", "--reason", "\udcfc"]])
def test_words_that_cannot_be_sent_are_named(capsys, words):
    assert cli.main(words) == 2
    assert "expected text in UTF-8" in capsys.readouterr().err
