"""Commands for running nodes, where no node runs, or other nodes than are meant."""

from collections.abc import Iterator
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from engram.app import cli, operate
from engram.nodes import qos

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


class Nodes:
    """Nodes that offer safety/stop and safety/reset, in participants of their own, and a thread that spins them."""

    def __init__(self) -> None:
        self.contexts: list[Any] = []
        self.nodes: list[Any] = []
        self.asked: list[str] = []
        self.executors: list[Any] = []
        self.ended = Event()
        self.thread = Thread(target=self._spin)

    def add(self, name: str, *, says: str = "ok", tells: bool | None = None, works: bool = True) -> None:
        """Add a node that answers ``says`` and ``tells`` whether a stop is latched, if it does; it ``works`` or not."""
        context = rclpy.Context()
        rclpy.init(context=context)
        node = rclpy.create_node(name, context=context)
        topic = None if tells is None else node.create_publisher(Bool, "safety/stopped", qos.LATCHED)
        if topic is not None:
            topic.publish(Bool(data=tells))

        def on(stopped: bool, _: Any, response: Any) -> Any:
            self.asked.append(name)
            if topic is not None and works:
                topic.publish(Bool(data=stopped))
            response.success, response.message = True, says
            return response

        for service, stopped in (("safety/stop", True), ("safety/reset", False)):
            node.create_service(Trigger, service, partial(on, stopped))
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        self.contexts.append(context)
        self.nodes.append(node)
        self.executors.append(executor)

    def _spin(self) -> None:
        while not self.ended.is_set():
            for executor in self.executors:
                executor.spin_once(timeout_sec=0.01)

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        for executor, node, context in zip(self.executors, self.nodes, self.contexts, strict=True):
            executor.shutdown()
            node.destroy_node()
            rclpy.try_shutdown(context=context)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("node", "heard"),
    [
        ({"name": "stranger"}, "was not heard: nothing"),
        (
            {"name": "stranger", "tells": True},
            "was not heard (writer of safety/stopped: from /stranger, expected /safety_node): nothing",
        ),
        ({"name": "safety_node", "tells": False, "works": False}, "says that no stop is latched: nothing"),
    ],
)
def test_a_stop_that_the_safety_node_does_not_confirm_names_the_emergency_stop(capsys, nodes, node, heard):
    nodes.add(**node)
    nodes.thread.start()
    assert cli.main(["stop", "--timeout-s", "5"]) == 1
    said = capsys.readouterr().out
    assert f"safety/stop answered 'ok', but safety/stopped of safety_node {heard} was stopped" in said
    assert "Use the emergency stop" in said and set(nodes.asked) == {node["name"]}


def test_a_stop_reaches_the_safety_node_whoever_else_answers(capsys, nodes):
    nodes.add("stranger", tells=False)
    nodes.add("safety_node", says="stopped", tells=False)
    nodes.thread.start()
    assert cli.main(["stop", "--timeout-s", "60"]) == 0
    assert "nothing was stopped" not in capsys.readouterr().out and "safety_node" in nodes.asked
    assert cli.main(["stop", "--timeout-s", "60"]) == 0  # a robot that is stopped is


def test_a_release_counts_when_the_safety_node_says_so_itself(capsys, nodes):
    nodes.add("safety_node", says="released from: button", tells=True)
    nodes.thread.start()
    assert cli.main(["release", "--timeout-s", "60"]) == 0
    assert capsys.readouterr().out == "released from: button\n"


def test_a_release_that_somebody_else_answers_releases_nothing(capsys, nodes):
    nodes.add("stranger", tells=False)
    nodes.add("safety_node", tells=True, works=False)
    nodes.thread.start()
    assert cli.main(["release", "--timeout-s", "5"]) == 1
    assert "but safety/stopped of safety_node says that a stop is latched" in capsys.readouterr().out


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
