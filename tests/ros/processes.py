"""Real node processes for tests, on a domain of their own, and a small node to talk to them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.srv import SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter

from engram.app.shared_memory import remove_dead_files
from engram.nodes import qos
from tests.ros.forkserver import Forked, ForkServer

ROOT = Path(__file__).parents[2]


@cache
def fork_server() -> ForkServer:
    """Return this test run's server, started when the first node is."""
    return ForkServer(environment_of_nodes())


def environment_of_nodes() -> dict[str, str]:
    """Return the environment of every node."""
    environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
    return environment | {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_PYTHON_CHECK_FIELDS": "1"}


class NodeProcess:
    """A node ``engram.nodes.<executable>`` with parameters; its output is kept for the error message."""

    def __init__(
        self,
        executable: str,
        parameters: Mapping[str, Any],
        domain: int,
        *,
        words: tuple[str, ...] = (),
        remap: tuple[str, ...] = (),
    ) -> None:
        arguments = [x for key, value in parameters.items() for x in ("-p", f"{key}:={_yaml(value)}")]
        arguments += [x for rule in remap for x in ("-r", rule)]
        self.executable = executable
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"{executable}-", suffix=".log")  # noqa: SIM115
        environment = environment_of_nodes() | {"ROS_DOMAIN_ID": str(domain)}
        words = (*words, "--ros-args", *arguments)
        self.child: subprocess.Popen[bytes] | Forked
        if (server := fork_server()).suits(environment):
            self.child = server.fork(executable, list(words), environment, str(ROOT), self.log.name)
            return
        self.child = subprocess.Popen(
            [sys.executable, "-m", f"engram.nodes.{executable}", *words],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def output(self) -> str:
        """Return what the process printed so far."""
        return Path(self.log.name).read_text()

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.child.poll() is None

    def end(self, number: int = signal.SIGINT, timeout_s: float = 60.0) -> int | None:
        """Send a signal and return the exit code; None: it did not end in time and was killed."""
        if self.alive():
            self.child.send_signal(number)
        try:
            return self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            return None


def python_path() -> str:
    """Return the search path of this very process: the nodes run the same checkout as the test."""
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(f"'{v}'" if isinstance(v, str) else str(v) for v in value) + "]"
    return str(value)


SETTLE_S = 0.3
"""How much later than we know of the other side of a topic it may know of ours [s]."""


class Graph:
    """Starts nodes, ends them all, and offers a node of the test's own that spins while it waits."""

    def __init__(self, domain: int) -> None:
        self.domain = domain
        self.processes: list[NodeProcess] = []
        self.stop_folder = tempfile.mkdtemp(prefix="engram-stop-")
        self.listening: list[Any] = []
        self.outsiders: list[Any] = []
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("test", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

        self.diagnostics: dict[str, DiagnosticStatus] = {}
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.DIAGNOSTICS)

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for status in msg.status:
            self.diagnostics[status.name.strip("/")] = status

    def active(self, *names: str, timeout_s: float = 200.0) -> None:
        """Wait until the nodes ``names`` are active."""
        self.wait(lambda: all(self.value(n, "state") == "active" for n in names), timeout_s, f"{names} active")

    def value(self, name: str, key: str) -> str:
        """Return a value of a node's newest diagnostic; "" when there is none."""
        status = self.diagnostics.get(name)
        return next((v.value for v in status.values if v.key == key), "") if status is not None else ""

    def message(self, name: str) -> str:
        """Return what a node's newest diagnostic says; "" when there is none."""
        status = self.diagnostics.get(name)
        return status.message if status is not None else ""

    def problem(
        self, name: str, words: str, timeout_s: float = 60.0, telling: Callable[[], Any] = lambda: None
    ) -> DiagnosticStatus:
        """Wait until the diagnostic of ``name`` says ``words`` as a warning or error, and return it.

        ``telling`` publishes what is wrong, again and again: a node may not know yet of a publisher that knows of it.
        """

        def said() -> DiagnosticStatus | None:
            status = self.diagnostics.get(name)
            return status if status and status.level != DiagnosticStatus.OK and words in status.message else None

        return self.wait_telling(telling, said, timeout_s, f"{name} says {words!r}")

    def start(self, executable: str, *words: str, remap: tuple[str, ...] = (), **parameters: Any) -> NodeProcess:
        """Start one node with ``words`` on its command line; "__" in a parameter's name stands for "."."""
        named = {k.replace("__", "."): v for k, v in parameters.items()}
        if executable == "safety_node":  # a stop that one test leaves latched is none for the next
            named.setdefault("stop_folder", self.stop_folder)
        process = NodeProcess(executable, named, self.domain, words=words, remap=remap)
        self.processes.append(process)
        return process

    def wait(self, condition: Callable[[], Any], timeout_s: float = 60.0, what: str = "") -> Any:
        """Spin until ``condition`` is true and return it; on a timeout fail with everybody's output."""
        end = time.monotonic() + timeout_s
        while not (value := condition()):
            dead = [p for p in self.processes if not p.alive() and p.child.returncode not in (0, -signal.SIGKILL)]
            if dead:
                self.spin(0.2)  # what it said last is on its way
                if value := condition():
                    return value
            if dead or time.monotonic() > end:
                why = (
                    f"{dead[0].executable} ended with {dead[0].child.returncode}"
                    if dead
                    else f"not after {timeout_s} s"
                )
                logs = "\n".join(f"--- {p.executable}\n{p.output()[-3000:]}" for p in self.processes)
                raise AssertionError(f"{what or condition}: {why}\n{logs}")
            self.executor.spin_once(timeout_sec=0.05)
        return value

    def spin(self, duration_s: float) -> None:
        """Spin for a while."""
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.05)

    def matched(self, *publishers: Any) -> None:
        """Wait until each of ``publishers`` has somebody who listens, and all that is listened to somebody who tells:
        neither what is published then nor what is answered is lost."""
        self.wait(lambda: all(p.get_subscription_count() for p in publishers), 60, "matching subscriptions")
        self.wait(lambda: all(s.get_publisher_count() for s in self.listening), 60, "matching publishers")
        self.spin(SETTLE_S)

    def wait_telling(
        self, tell: Callable[[], Any], condition: Callable[[], Any], timeout_s: float, what: str, period_s: float = 0.5
    ) -> Any:
        """Wait for ``condition`` and ``tell`` again and again: one message may be lost, or be too old on arrival."""
        next_at = 0.0

        def told() -> Any:
            nonlocal next_at
            if time.monotonic() >= next_at:
                tell()
                next_at = time.monotonic() + period_s
            return condition()

        return self.wait(told, timeout_s, what)

    def listen(self, msg_type: type, topic: str, profile: Any = 10) -> list:
        """Subscribe and return the list that the messages go to."""
        heard: list = []
        self.listening.append(self.node.create_subscription(msg_type, topic, heard.append, profile))
        return heard

    def call(self, srv_type: type, name: str, request: Any, timeout_s: float = 60.0) -> Any:
        """Call a service, waiting for it to appear."""
        client = self.node.create_client(srv_type, name)
        self.wait(client.service_is_ready, timeout_s, f"service {name}")
        future = client.call_async(request)
        self.wait(future.done, timeout_s, f"answer of {name}")
        self.node.destroy_client(client)
        return future.result()

    def set_parameters(self, name: str, **values: Any) -> list[str]:
        """Set parameters of a running node and return why each was refused; "" = it was not."""
        wanted = [Parameter(key, value=value).to_parameter_msg() for key, value in values.items()]
        answer = self.call(SetParameters, f"{name}/set_parameters", SetParameters.Request(parameters=wanted))
        return ["" if result.successful else result.reason or "refused" for result in answer.results]

    def outsider(self, name: str = "outsider") -> Any:
        """Return a node of a DDS participant of its own, as another process would be."""
        context = rclpy.Context()
        rclpy.init(context=context, domain_id=self.domain)
        node = rclpy.create_node(name, context=context)
        self.outsiders.append((context, node))
        return node

    def close(self) -> dict[str, int | None]:
        """End every node with SIGINT and return the exit codes; None: it did not end and was killed."""
        for process in self.processes:
            if process.alive():
                process.child.send_signal(signal.SIGINT)
        codes = {process.executable: process.end() for process in self.processes}
        for context, node in self.outsiders:
            node.destroy_node()
            rclpy.try_shutdown(context=context)
        self.executor.shutdown()
        for waitable in list(self.node.waitables):  # action clients, which would keep the participant alive
            waitable.destroy()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)
        shutil.rmtree(self.stop_folder, ignore_errors=True)
        remove_dead_files()  # of nodes that a test killed
        return codes
