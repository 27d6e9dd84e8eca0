"""``engram up``: start the node set of a launch file as processes, watch over it, end it cleanly.

It does what ``ros2 launch`` does with the same file: respawn with a delay, ``on_exit: shutdown``, lines prefixed by the
node's name, and on Ctrl-C SIGINT, then SIGTERM, then SIGKILL to whoever has not ended. Beyond that, a node that dies
again and again within a few minutes stays down. A node that cannot work with its configuration (exit code 2) is not
restarted, and if it has never worked, all nodes are ended.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TextIO

import tyro

from engram.app.launch_graph import LaunchGraph, NodeSpec, find_launch_file, load_graph, parse_assignments
from engram.app.line_writer import LineWriter
from engram.app.process import Process, check_domain, node_command
from engram.app.ros_environment import ADVICE, foreign_ros
from engram.app.shared_memory import remove_dead_files
from engram.core.errors import EXIT_MISCONFIGURED, EngramError, InvalidInputError

DISCOVERY = "ROS_AUTOMATIC_DISCOVERY_RANGE"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True)
class SupervisorConfig:
    """How patient the supervisor is."""

    poll_period_s: float = 0.1
    """How often the processes are looked at [s]."""
    max_restarts: int = 5
    """A node is given up after so many restarts within `restart_window_s`, unless the launch file names a limit."""
    restart_window_s: float = 300.0
    """How long a restart counts [s]."""
    end_timeout_s: float = 5.0
    """How long a node may take to end after a signal before the next, stronger one [s]."""


@dataclass
class Supervised:
    """A node of the graph and the state of its process."""

    spec: NodeSpec
    process: Process | None = None
    starts: int = 0
    restarted: list[float] = field(default_factory=list)  # monotonic times of the newest restarts
    exit_code: int | None = None  # of the last end
    start_at: float | None = None  # monotonic time of the next (re)start; None = no start is due
    failed: bool = False  # ended by itself with an error and nothing will restart it
    signals_sent: int = 0

    @property
    def restarts(self) -> int:
        """How often it was started again after an end."""
        return max(0, self.starts - 1)


class Supervisor:
    """Keeps the processes of a launch graph as the graph says. Not thread-safe; use it from the main thread."""

    def __init__(
        self,
        graph: LaunchGraph,
        environment: Mapping[str, str],
        sink: Callable[[str, str], None],
        command: Callable[[NodeSpec, Path], list[str]] = node_command,
        config: SupervisorConfig | None = None,
    ) -> None:
        """``sink`` gets (node name, line) for everything that a node prints, from several threads at once."""
        self.config = config or SupervisorConfig()
        self.environment = {**environment, **graph.environment}
        self.sink = sink
        self.children = {spec.name: Supervised(spec, start_at=0.0) for spec in graph.nodes}
        self._folder = tempfile.TemporaryDirectory(prefix="engram-parameters-")
        # all at once: a bad name fails before anything has started
        self._commands = {spec.name: command(spec, Path(self._folder.name)) for spec in graph.nodes}
        self.ending = False
        self._level_since = 0.0
        self._tidy()

    @property
    def restarts(self) -> int:
        """Restarts of all nodes together."""
        return sum(c.restarts for c in self.children.values())

    @property
    def alive(self) -> tuple[str, ...]:
        """Names of the nodes that run now."""
        return tuple(name for name, c in self.children.items() if c.process is not None)

    @property
    def failures(self) -> dict[str, int | None]:
        """Exit code of every node that failed for good."""
        return {name: c.exit_code for name, c in self.children.items() if c.failed}

    def step(self) -> bool:
        """Reap, restart, escalate; return False when nothing runs any more and nothing is due."""
        now = time.monotonic()
        for name, child in self.children.items():
            if child.process is not None and (code := child.process.poll()) is not None:
                self._ended(name, child, code, now)
            if child.start_at is not None and now >= child.start_at and not self.ending:
                self._start(name, child)
        if self.ending and now - self._level_since > self.config.end_timeout_s:
            self.end()
        return any(c.process is not None or c.start_at is not None for c in self.children.values())

    def end(self) -> None:
        """Ask everything to end; every further call uses a stronger signal."""
        self.ending = True
        self._level_since = time.monotonic()
        for name, child in self.children.items():
            child.start_at = None
            if child.process is None:
                continue
            number = SIGNALS[min(child.signals_sent, len(SIGNALS) - 1)]
            if child.signals_sent:
                self.sink(name, f"has not ended; sending {signal.Signals(number).name}")
            child.signals_sent += 1
            child.process.signal(number)

    def run(self) -> int:
        """Watch until everything ended; return 0 unless a node failed for good."""
        while self.step():
            time.sleep(self.config.poll_period_s)
        self._tidy()
        return 1 if self.failures else 0

    def _start(self, name: str, child: Supervised) -> None:
        environment = {**self.environment, **child.spec.environment}
        child.process = Process(self._commands[name], environment, lambda line: self.sink(name, line))
        child.starts += 1
        child.start_at = None
        self.sink(name, f"started, pid {child.process.pid}")

    def _ended(self, name: str, child: Supervised, code: int, now: float) -> None:
        assert child.process is not None
        child.process.close()
        child.process, child.exit_code = None, code
        if code != 0:
            self._tidy()
        spec = child.spec
        if self.ending:
            # Python answers a SIGINT while it still imports with exit code 1: only crashes and SIGKILL count here
            child.failed = code < 0 and -code not in (signal.SIGINT, signal.SIGTERM)
            self.sink(name, f"ended, exit code {code}")
            return
        if code == EXIT_MISCONFIGURED and spec.package == "engram":
            child.failed = True
            self.sink(name, "cannot work as it is configured: it stays down; its error is above")
            if child.restarts == 0:
                self.sink(name, "ending everything")
                self.end()
            return
        child.restarted = [at for at in child.restarted if now - at < self.config.restart_window_s]
        limit = spec.respawn_max_retries if spec.respawn_max_retries >= 0 else self.config.max_restarts
        retries_left = len(child.restarted) < limit
        if spec.respawn and retries_left:
            self.sink(name, f"died, exit code {code}; restart {child.restarts + 1} in {spec.respawn_delay_s:g} s")
            child.start_at = now + spec.respawn_delay_s
            child.restarted.append(now)
            return
        child.failed = code != 0 or spec.respawn
        count, window_s = len(child.restarted), self.config.restart_window_s
        why = f" after {count} restarts within {window_s:g} s" if spec.respawn else ""
        self.sink(name, f"ended, exit code {code}{why}; it stays down")
        if spec.required:
            self.sink(name, "is required: ending everything")
            self.end()

    def _tidy(self) -> None:
        """Remove what killed nodes, ours or of an earlier day, left in shared memory: it would fill up."""
        count, size = remove_dead_files()
        if count:
            self.sink("engram up", f"removed {size >> 20} MB of shared memory that {count} dead DDS ends had left")


class LineSink:
    """Merges the lines of all nodes onto one stream, each with its node's name, and into one file a node.

    When nobody reads the stream, or it breaks (``engram up | head``), the files and the last lines go on: nodes and
    their supervisor must not wait for a reader.
    """

    COLORS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
    WIDTH = 20
    TAIL = 200

    def __init__(self, stream: TextIO | None, log_dir: Path | None = None) -> None:
        self._writer = None if stream is None else LineWriter(stream, self._left_out)
        self._colored = stream is not None and stream.isatty()
        self._lock = threading.RLock()  # a signal handler may end what prints a line just now
        self._tails: dict[str, deque[str]] = {}
        self._files: dict[str, TextIO] = {}
        self.log_dir = log_dir

    def __call__(self, name: str, line: str) -> None:
        with self._lock:
            if name not in self._tails:
                self._tails[name] = deque(maxlen=self.TAIL)
                if self.log_dir is not None:
                    self.log_dir.mkdir(parents=True, exist_ok=True)
                    self._files[name] = (self.log_dir / f"{name}.log").open("a")
            self._tails[name].append(line)
            if name in self._files:
                self._keep(name, line)
            if self._writer is not None:
                self._writer.put(f"{self._prefix(name)} {line}")

    def _keep(self, name: str, line: str) -> None:
        try:
            print(line, file=self._files[name], flush=True)
        except OSError as error:  # such as a full disk
            del self._files[name]
            self(name, f"this log goes no further: {error}")

    def _left_out(self, count: int) -> str:
        kept = f"; {self.log_dir} has them" if self.log_dir is not None else ""
        return f"{'[engram up]':{self.WIDTH}} {count} lines are left out here: nobody read them{kept}"

    def _prefix(self, name: str) -> str:
        prefix = f"[{name}]".ljust(self.WIDTH)
        if not self._colored:
            return prefix
        color = self.COLORS[list(self._tails).index(name) % len(self.COLORS)]
        return f"\x1b[{color}m{prefix}\x1b[0m"

    def tail(self, name: str, lines: int = 20) -> list[str]:
        """Return the last lines of one node."""
        with self._lock:
            return list(self._tails.get(name, ()))[-lines:]

    def error(self, name: str) -> str:
        """Return ": " and the error that one node ended with; empty if it told none."""
        errors = [line.removeprefix("error") for line in self.tail(name, self.TAIL) if line.startswith("error: ")]
        return errors[-1] if errors else ""

    def close(self) -> None:
        """Write the lines that wait for the stream, unless nobody reads it, and close the log files."""
        if self._writer is not None:
            self._writer.close()
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()


def child_environment(
    domain: int | None, discovery: str | None, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment nodes run in: one torch thread each, EGL rendering, the DDS domain.

    A variable that the user has set wins over our default; ``domain`` and ``discovery`` win over both.
    """
    defaults = {"OMP_NUM_THREADS": "1", "MUJOCO_GL": "egl", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    environment = {**defaults, **(os.environ if environ is None else environ)}
    if domain is not None:
        check_domain(domain)
        environment["ROS_DOMAIN_ID"] = str(domain)
    if discovery is not None:
        environment[DISCOVERY] = discovery
    return environment


def end_on_signals(supervisor: Supervisor) -> None:
    """Let SIGINT and SIGTERM end the node set; a second one does not wait for the slow."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.end())


@dataclass(frozen=True)
class UpConfig:
    """Start the nodes of a launch file and watch over them (``ros2 launch engram <file>`` does the same)."""

    file: tyro.conf.Positional[str] = "sim"
    """Launch file: sim, robot, memory, far or a path of a *.launch.yaml."""
    arguments: tyro.conf.Positional[tuple[str, ...]] = ()
    """Launch arguments as name:=value."""
    show_args: Annotated[bool, tyro.conf.arg(aliases=("-s",))] = False
    """List the arguments of the file and end."""
    dry_run: bool = False
    """Print the command of every node and end."""
    domain: int | None = None
    """ROS_DOMAIN_ID for all nodes, 0..101 (Linux may give the ports of a larger one to other programs); default: the
    environment's."""
    discovery: Literal["LOCALHOST", "SUBNET", "OFF", "SYSTEM_DEFAULT"] | None = None
    """How far the nodes are found (ROS_AUTOMATIC_DISCOVERY_RANGE); default: the environment's, else LOCALHOST."""
    log_dir: Path | None = None
    """Folder for one log file per node, in addition to the merged output."""
    supervisor: tyro.conf.OmitArgPrefixes[SupervisorConfig] = field(default_factory=SupervisorConfig)


def describe_arguments(graph: LaunchGraph) -> str:
    """Return one paragraph an argument: name, value, what it does, choices."""
    lines = []
    for argument in graph.arguments:
        choices = f" (one of: {', '.join(argument.choices)})" if argument.choices else ""
        lines.append(f"  {argument.name}:={graph.values[argument.name]!r}{choices}\n      {argument.description}")
    return "\n".join(lines)


def check_learner_of(values: Mapping[str, str]) -> None:
    """Raise InvalidInputError where the launch argument ``learner_of`` names no other robot's namespace."""
    other, own = values.get("learner_of", "none"), values.get("namespace", "").strip("/")
    if re.fullmatch(r"[A-Za-z]\w*(/[A-Za-z]\w*)*", other) is None:
        raise InvalidInputError(f"learner_of: {other!r}, expected the namespace of another robot, such as r1, or none")
    if other == own:
        raise InvalidInputError(f"learner_of: {other!r} is this robot itself; leave it out, or name another robot")


def up(config: UpConfig) -> int:
    """Run ``config.file`` until Ctrl-C or until a required node ends; return the exit code."""
    name, words = (config.file, config.arguments)
    if ":=" in name:  # the file was left out
        name, words = "sim", (name, *words)
    environment = child_environment(config.domain, config.discovery or os.environ.get(DISCOVERY, "LOCALHOST"))
    graph = load_graph(find_launch_file(name), parse_assignments(words), environment)
    if config.show_args:
        print(f"Arguments of {graph.path.name}:\n{describe_arguments(graph)}")
        return 0
    if config.dry_run:
        folder = Path(tempfile.mkdtemp(prefix="engram-parameters-"))
        for spec in graph.nodes:
            print(shlex.join(node_command(spec, folder)))
        return 0
    check_learner_of(graph.values)
    if wrong := foreign_ros():
        raise EngramError(f"{wrong}: {ADVICE}")
    sink = LineSink(sys.stdout, config.log_dir)
    try:
        supervisor = Supervisor(graph, environment, sink, config=config.supervisor)
        end_on_signals(supervisor)
        code = supervisor.run()
        for name, exit_code in supervisor.failures.items():
            sink("engram up", f"{name} failed, exit code {exit_code}{sink.error(name)}")
    finally:
        sink.close()
    return code
