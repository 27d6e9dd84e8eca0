"""The running loop for trials: all nodes of a launch file as processes, watched from outside, killed at will."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from engram.app.launch_graph import LaunchGraph, find_launch_file, load_graph
from engram.app.up import LineSink, Supervisor, child_environment
from engram.benchmarks.faults_writers import Writers
from engram.core.child import end_with_parent
from engram.core.errors import EngramError
from engram.nodes import qos
from engram.nodes.loop_client import EpisodeReport, LoopClient
from engram.runtime.health import TOPIC

DIAGNOSTICS_S = 0.5
"""Time between two diagnostics of a node in a trial: recovery times are as fine as that [s]."""
START_S = 300.0
NOT_OURS = ("lifecycle_manager", "rviz2", "extra_node")
REFUSALS = ("problems ", "refus", "reject", "invalid", "stale", "unfit", "ignored", "filter ", "drops", "not ")
"""How names of counters begin, or what is in them, that count what was not taken."""
REGULAR = ("episodes not learnt from", "candidates not shown")
"""How names of counters begin that grow as the loop works, whatever is sent to it."""


class TrialError(EngramError):
    """The node set did not come up, or a trial could not be carried out."""


def trial_graph(file: str, values: dict[str, str], restarts: int = -1) -> LaunchGraph:
    """Return the node list of launch file ``file`` with frequent diagnostics.

    ``restarts``: so often each node is started again within five minutes; below 0: as often as usual.
    """
    graph = load_graph(find_launch_file(file), values)
    often = ("diagnostics_period_s", DIAGNOSTICS_S)
    own = {"learner_node": (("policy", "base"),)}  # it trains no other; what others did is stored all the same
    nodes = [
        spec
        if spec.executable in NOT_OURS
        else dataclasses.replace(spec, parameters=(*spec.parameters, often, *own.get(spec.executable, ())))
        for spec in graph.nodes
    ]
    if restarts >= 0:
        nodes = [dataclasses.replace(spec, respawn_max_retries=restarts) for spec in nodes]
    return dataclasses.replace(graph, nodes=tuple(nodes))


class Loop:
    """A running node set, the processes beside it, and what its diagnostics said last and when.

    Args:
        graph: nodes to start.
        folder: home of the nodes, and where logs go.
        domain: ROS_DOMAIN_ID.
        environment: more variables of all its processes.
    """

    def __init__(
        self, graph: LaunchGraph, folder: Path, domain: int, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.folder, self.domain = folder, domain
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        self.environment = child_environment(domain, "LOCALHOST", {**os.environ, "HOME": str(home)})
        os.environ.update({**self.environment, **graph.environment, "HOME": os.environ["HOME"]})
        self.environment |= environment
        self.sink = LineSink(None, folder / "logs")
        self.supervisor = Supervisor(graph, self.environment, self.sink)
        self.names = tuple(spec.name for spec in graph.nodes)
        self.client = LoopClient(domain=domain, idle=self._idle)
        self.heard: dict[str, float] = {}  # node -> when its last diagnostic came [monotonic s]
        self.status: dict[str, DiagnosticStatus] = {}
        self.longest_silence: dict[str, float] = {}
        self.every_turn: Callable[[], object] = lambda: None
        self._writers = Writers(self.client.node)
        self._watcher: subprocess.Popen[bytes] | None = None
        self.client.node.create_subscription(DiagnosticArray, TOPIC, self._on_diagnostics, qos.DIAGNOSTICS)

    def _idle(self) -> None:
        self.supervisor.step()
        self.every_turn()

    def _on_diagnostics(self, msg: DiagnosticArray, info: Any) -> None:
        writer, now = self._writers.name(TOPIC, info), time.monotonic()
        for status in msg.status:
            name = status.name.strip("/")
            if writer != name:  # somebody else speaks for it
                continue
            if name in self.heard:
                self.longest_silence[name] = max(self.longest_silence.get(name, 0.0), now - self.heard[name])
            self.heard[name], self.status[name] = now, status

    # -- what a node says ------------------------------------------------------------------------------------------

    def value(self, name: str, key: str) -> str:
        """Return a value of a node's newest diagnostic; "" = there is none."""
        status = self.status.get(name)
        return next((v.value for v in status.values if v.key == key), "") if status is not None else ""

    def active(self, name: str) -> bool:
        """Tell whether the newest diagnostic of a node is recent and says that it works."""
        fresh = time.monotonic() - self.heard.get(name, 0.0) < 4 * DIAGNOSTICS_S + 2.0
        return fresh and (name == "lifecycle_manager" or self.value(name, "state") == "active")

    def inactive(self) -> list[str]:
        """Return the nodes that are not active."""
        return [name for name in self.names if not self.active(name)]

    def refusals(self) -> Counter[str]:
        """Return "node: counter" -> count for all counters of what was not taken."""
        found: Counter[str] = Counter()
        for name, status in self.status.items():
            for item in status.values:
                refusal = any(word in item.key for word in REFUSALS) and not item.key.startswith(REGULAR)
                if refusal and item.value.isdigit():
                    found[f"{name}: {item.key}"] = int(item.value)
        return found

    # -- what is done to them --------------------------------------------------------------------------------------

    def wait_active(self, timeout_s: float = START_S) -> float:
        """Wait until every node is active; return how long it took [s]. Raises TrialError."""
        began = time.monotonic()
        while inactive := self.inactive():
            if self.supervisor.ending:
                why = "; ".join(f"{name} failed{self.sink.error(name)}" for name in self.supervisor.failures)
                raise TrialError(f"{why}; logs: {self.folder}")
            if time.monotonic() - began > timeout_s:
                raise TrialError(f"not active after {timeout_s:g} s: {', '.join(inactive)}; logs: {self.folder}")
            self.client.spin(0.1)
        return time.monotonic() - began

    def kill(self, name: str) -> float:
        """Kill a node with SIGKILL and forget what it said; return when [monotonic s]."""
        process = self.supervisor.children[name].process
        if process is None:
            raise TrialError(f"{name} does not run")
        at = time.monotonic()
        os.killpg(process.pid, signal.SIGKILL)
        while process.poll() is None:
            time.sleep(0.002)
        self.client.spin(0.05)
        self.heard.pop(name, None)
        self.status.pop(name, None)
        return at

    def episode(self, task: str, seed: int, timeout_s: float) -> EpisodeReport | str:
        """Run one episode as any user does; return why it did not come to its end, if it did not."""
        try:
            return self.client.run_episode(task, seed, timeout_s)
        except EngramError as error:
            return str(error)

    # -- processes beside the nodes --------------------------------------------------------------------------------

    def beside(self, module: str, *words: str, orders: bool = False) -> subprocess.Popen[bytes]:
        """Start a process of ours in the nodes' world; its output goes to a file in the logs. ``orders``: it reads."""
        path = self.folder / "logs" / f"{module}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            command = [sys.executable, "-m", f"engram.benchmarks.{module}", *words]
            # messages of the right types: that they are is not checked a million times
            environment = {k: v for k, v in self.environment.items() if k != "ROS_PYTHON_CHECK_FIELDS"}
            reading = subprocess.PIPE if orders else subprocess.DEVNULL
            with_us = partial(end_with_parent, os.getpid())
            return subprocess.Popen(command, env=environment, stdin=reading, stdout=log, stderr=log, preexec_fn=with_us)

    def watch(self, *words: str) -> Path:
        """Start the watcher; return the file of its findings."""
        path = self.folder / "watched.jsonl"
        self._watcher = self.beside("faults_watch", str(path), *words)
        end_at = time.monotonic() + START_S
        while not any(row["kind"] == "ready" for row in findings(path)):
            if self._watcher.poll() is not None or time.monotonic() > end_at:
                raise TrialError(f"the watcher did not begin; logs: {self.folder}")
            self.client.spin(0.2)
        return path

    def close(self) -> None:
        """End everything, the nodes last."""
        if self._watcher is not None:
            end(self._watcher)
        self.client.idle = lambda: None
        self.client.close()
        self.supervisor.end()
        self.supervisor.run()
        self.sink.close()


def end(process: subprocess.Popen[bytes], timeout_s: float = 10.0) -> None:
    """End a process beside the nodes, by SIGKILL when it does not end itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
        return
    process.kill()
    process.wait()


@contextmanager
def running(file: str, values: dict[str, str], folder: Path, domain: int, restarts: int = -1) -> Iterator[Loop]:
    """Start the nodes of a launch file, as :func:`trial_graph` has them, and wait until they are active.

    On leaving, they are ended.
    """
    loop = Loop(trial_graph(file, values, restarts), folder, domain)
    try:
        loop.wait_active()
        yield loop
    finally:
        loop.close()


def findings(path: Path, since: float = 0.0, until: float = float("inf")) -> list[dict[str, Any]]:
    """Return what the watcher found between two times [monotonic s]."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [row for row in rows if since <= row["at"] <= until]
