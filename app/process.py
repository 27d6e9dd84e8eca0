"""One supervised operating-system process: start, read its lines, signal, reap."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from engram.app.launch_graph import NodeSpec, package_share
from engram.core.child import end_with_parent
from engram.core.errors import InvalidInputError, unknown_name

EXECUTABLES = (
    *("sim_node", "robot_node", "perception_node", "memory_node", "policy_node", "safety_node"),
    *("learner_node", "gate_node", "viewer_node", "link_node", "extra_node", "lifecycle_manager"),
)


def node_command(spec: NodeSpec, folder: Path) -> list[str]:
    """Return the command line of a node: ours as Python modules, others from ``lib/<package>`` of a ROS workspace.

    Its parameters are written into ``folder``.
    """
    if spec.package == "engram":
        if spec.executable not in EXECUTABLES or find_spec(f"engram.nodes.{spec.executable}") is None:
            raise unknown_name("executable of package engram:", spec.executable, EXECUTABLES)
        return [sys.executable, "-m", f"engram.nodes.{spec.executable}", *spec.ros_arguments(folder)]
    programs = package_share(spec.package).parents[1] / "lib" / spec.package
    path = programs / spec.executable
    if not os.access(path, os.X_OK):
        there = [p.name for p in programs.glob("*")] if programs.is_dir() else []
        raise unknown_name(f"executable of package {spec.package}:", spec.executable, there)
    return [str(path), *spec.ros_arguments(folder)]


DOMAINS = range(0, 102)
"""ROS_DOMAIN_ID: above, Linux hands the ports of a domain to other programs."""


def check_domain(domain: int) -> None:
    """Raise InvalidInputError for a ROS_DOMAIN_ID that cannot be used."""
    if domain not in DOMAINS:
        raise InvalidInputError(f"domain {domain}: expected {DOMAINS.start}..{DOMAINS.stop - 1}")


def _begin(parent: int) -> None:
    """Called in a child process: it ends with ``parent``, and Ctrl-C ends it also where a script ignores that.

    A shell that starts a command with ``&`` has it ignore SIGINT, and every process that the command starts.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """A child in its own process group, so that Ctrl-C in the terminal reaches it only through the supervisor."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], on_line: Callable[[str], None]) -> None:
        self.command = tuple(command)
        self._child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(_begin, os.getpid()),
        )
        self._reader = threading.Thread(target=self._read, args=(on_line,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Operating-system process id."""
        return self._child.pid

    def _read(self, on_line: Callable[[str], None]) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with contextlib.suppress(OSError, ValueError):  # who does not read a node's words makes it wait for ever
                on_line(line.decode(errors="replace").rstrip("\r\n"))

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._child.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the process and everything it started."""
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end in between
                os.killpg(self._child.pid, number)

    def close(self) -> None:
        """Take in the last lines of an ended process."""
        self._reader.join(timeout=2.0)
