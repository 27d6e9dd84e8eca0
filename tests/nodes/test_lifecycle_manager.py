"""The manager on real lifecycle nodes in processes of their own: order, failure, restart, pause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

from engram.app.up import child_environment

DOMAIN = int(os.environ["ROS_DOMAIN_ID"])
NODE = """
import os, sys, time
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn as Return

class Small(LifecycleNode):
    def on_configure(self, state):
        print("configure", time.monotonic(), flush=True)
        return Return.FAILURE if "broken" in sys.argv else Return.SUCCESS

    def on_activate(self, state):
        print("activate", time.monotonic(), flush=True)
        return super().on_activate(state)

rclpy.init()
try:
    rclpy.spin(Small(sys.argv[1]))
except (KeyboardInterrupt, ExternalShutdownException):
    pass
os._exit(0)  # Fast DDS waits for ever at times where several leave together
"""

MARKED = """
import sys
from engram.nodes.base import EngramNode
from engram.nodes.process import run

run(lambda: EngramNode(sys.argv[1]), [sys.argv[0], "--ros-args", "-p", "autostart:=false"])
"""
"""A node as ours run: its process can be found by its name."""

pytestmark = pytest.mark.ros


class Fleet:
    """Small lifecycle nodes and one manager, as processes."""

    def __init__(self) -> None:
        self.environment = child_environment(DOMAIN, "LOCALHOST")
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def node(self, name: str, *words: str) -> None:
        self._start(name, "-c", NODE, name, *words)

    def marked(self, name: str) -> None:
        self._start(name, "-c", MARKED, name)

    def manager(self, *names: str, **parameters: Any) -> None:
        fast = {"poll_period_s": 0.1, "retry_s": 0.1, "silent_after_s": 5.0}
        words = [f"{key}:={json.dumps(value)}" for key, value in ({"node_names": names} | fast | parameters).items()]
        arguments = [part for word in words for part in ("-p", word)]
        self._start("manager", "-m", "engram.nodes.lifecycle_manager", "--ros-args", *arguments)

    def _start(self, name: str, *command: str) -> None:
        self.processes[name] = subprocess.Popen(
            [sys.executable, *command], env=self.environment, stdout=subprocess.PIPE, text=True
        )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def end(self) -> dict[str, str]:
        """End everything; return what each process printed."""
        for process in self.processes.values():
            process.send_signal(signal.SIGINT)
        out = {}
        for name, process in self.processes.items():
            try:
                out[name] = process.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                out[name] = process.communicate()[0]
        return out


class Client:
    """Calls the manager's services and keeps its last diagnostics."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=DOMAIN)
        self.node = Node("test_client", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.states: dict[str, str] = {}
        self.level = b"\0"
        self.message = ""
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        status = msg.status[0]
        if not status.name.endswith("lifecycle_manager"):
            return  # the nodes that are like ours say how they are, too
        self.states = {item.key: item.value for item in status.values}
        self.level, self.message = status.level, status.message

    def wait(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"did not come true: {self.message} {self.states}"
            self.executor.spin_once(timeout_sec=0.1)

    def call(self, name: str) -> Trigger.Response:
        client = self.node.create_client(Trigger, f"lifecycle_manager/{name}")
        self.wait(client.service_is_ready)
        future = client.call_async(Trigger.Request())
        self.wait(future.done)
        return future.result()

    def close(self) -> None:
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    made = Client()
    yield made
    made.close()


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    made = Fleet()
    yield made
    made.end()


def moments(text: str) -> dict[str, float]:
    return {word: float(at) for word, at in (line.split() for line in text.splitlines())}


def test_nodes_are_activated_in_order_and_restarted_ones_come_back(fleet: Fleet, client: Client) -> None:
    for name in ("first", "second", "third"):
        fleet.node(name)
    fleet.manager("third", "first", "second")
    client.wait(lambda: client.states == {"third": "active", "first": "active", "second": "active"})
    assert client.call("is_active").success
    assert client.message == "3 of 3 active"

    os.kill(fleet.processes["first"].pid, signal.SIGKILL)
    printed = fleet.processes["first"].communicate()[0]
    client.wait(lambda: client.states["first"] != "active")  # before it is back: it may be active again at once
    fleet.node("first")  # what a supervisor does
    client.wait(lambda: client.states["first"] == "active")

    assert client.call("pause").success
    client.wait(lambda: set(client.states.values()) == {"inactive"})
    assert not client.call("is_active").success
    assert client.call("shutdown").success
    client.wait(lambda: set(client.states.values()) == {"unconfigured"})
    out = fleet.end()
    times = [moments(text)["activate"] for text in (out["third"], printed, out["second"])]
    assert times == sorted(times)


def test_a_node_that_hangs_is_killed_and_the_robot_holds_until_it_is_back(fleet: Fleet, client: Client) -> None:
    """Its process stands still, as one does that waits for a dead disk: it answers nothing and does not end."""
    names = ("hangs", "works", "moves")
    for name in names:
        fleet.marked(name)
    fleet.manager(*names, silent_after_s=2.0, kill_after_s=6.0, motion_node="moves")
    client.wait(lambda: client.states == dict.fromkeys(names, "active"))
    hung = fleet.processes["hangs"]
    hung.send_signal(signal.SIGSTOP)
    client.wait(lambda: client.states == {"hangs": "silent", "works": "active", "moves": "inactive"})
    assert client.level == b"\x02" and hung.poll() is None
    client.wait(lambda: hung.poll() is not None)
    assert hung.returncode == -signal.SIGKILL
    fleet.marked("hangs")  # what a supervisor does
    client.wait(lambda: client.states == dict.fromkeys(names, "active"))
    assert [fleet.processes[name].poll() for name in names] == [None, None, None]


def test_the_robot_goes_on_while_a_node_that_died_is_started_again(fleet: Fleet, client: Client) -> None:
    """DDS takes a while to notice; until then a dead node is as silent as one that hangs."""
    for name in ("dies", "moves"):
        fleet.marked(name)
    fleet.manager("dies", "moves", silent_after_s=3.0, motion_node="moves")
    client.wait(lambda: client.states == dict.fromkeys(("dies", "moves"), "active"))
    fleet.kill("dies")
    client.wait(lambda: client.states["dies"] == "silent")
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        client.executor.spin_once(timeout_sec=0.1)
        assert client.states["moves"] != "inactive"


def test_a_manager_that_stood_still_itself_kills_nobody(fleet: Fleet, client: Client) -> None:
    fleet.marked("works")
    fleet.manager("works", silent_after_s=1.0, kill_after_s=1.5)
    client.wait(lambda: client.states == {"works": "active"})
    fleet.processes["manager"].send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    fleet.processes["manager"].send_signal(signal.SIGCONT)
    client.states.clear()
    client.wait(lambda: client.states == {"works": "active"})
    assert fleet.processes["works"].poll() is None


def test_nobody_waits_for_an_optional_node_and_one_that_comes_is_brought_up(fleet: Fleet, client: Client) -> None:
    fleet.node("first")
    fleet.manager("first", optional_names=["second", "never"])
    client.wait(lambda: client.states == {"first": "active"})
    assert client.call("is_active").success
    assert client.message == "1 of 1 active"
    fleet.node("second")
    client.wait(lambda: client.states == {"first": "active", "second": "active"})
    assert client.message == "2 of 2 active"


def test_a_node_that_cannot_be_configured_is_named_and_the_others_go_on(fleet: Fleet, client: Client) -> None:
    fleet.node("good")
    fleet.node("bad", "broken")
    fleet.manager("bad", "good", max_attempts=2)
    client.wait(lambda: client.states.get("good") == "active")
    client.wait(lambda: client.states["bad"] == "failed")
    assert client.level == b"\x02"
    assert "bad failed: configure failed" in client.message
    assert fleet.end()["bad"].count("configure") == 2


def test_an_absent_node_is_reported_and_brought_up_when_it_comes(fleet: Fleet, client: Client) -> None:
    fleet.manager("late")
    client.wait(lambda: client.states.get("late") == "absent")
    assert client.level == b"\x02"
    fleet.node("late")
    client.wait(lambda: client.states["late"] == "active")


def test_without_autostart_nothing_moves_until_asked(fleet: Fleet, client: Client) -> None:
    fleet.node("one")
    fleet.manager("one", autostart=False)
    client.wait(lambda: client.states.get("one") == "unconfigured")
    assert client.call("startup").success
    client.wait(lambda: client.states["one"] == "active")


def test_it_refuses_to_manage_nothing() -> None:
    words = ["-m", "engram.nodes.lifecycle_manager"]
    environment = child_environment(DOMAIN, "LOCALHOST")
    result = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 2
    assert "'node_names': [], expected at least one name" in result.stderr
