"""Forks node processes for tests from one that has imported what nodes import: most of a node's start is imports.

Run as a module it is the server: it reads one JSON request a line and answers each with one line. How nodes start
otherwise, by ``python -m``, is tested where launch files start them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from engram.core.child import end_with_parent

IMPORTED = (
    *("torch", "torch._dynamo", "scipy.stats", "scipy.optimize", "networkx", "zarr", "open3d", "viser"),
    *("engram.policies", "engram.sim.worlds", "engram.validation", "engram.learning"),
)
"""Not rclpy and icechunk: importing them starts threads, which a fork would not have."""
OWN = ("HOME", "PYTEST_CURRENT_TEST", "ROS_")
"""Environment variables, or how they begin, that no import reads: a node may have other ones than the server."""


class Forked:
    """A forked node process; the part of :class:`subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once there is one; raises TimeoutExpired."""
        end = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("node", timeout or 0.0)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:  # it stays a zombie until it was asked for: the number is no other process's
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks nodes; it ends with this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        command = [sys.executable, "-m", "tests.ros.forkserver", str(os.getpid())]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        self._lock = threading.Lock()

    def ask(self, **request: Any) -> Any:
        """Return the server's answer."""
        with self._lock:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Tell whether a node with that environment would import the same."""
        names = {*environment, *self.environment}
        return all(environment.get(n) == self.environment.get(n) for n in names if not n.startswith(OWN))

    def fork(self, executable: str, words: list[str], environment: Mapping[str, str], folder: str, log: str) -> Forked:
        """Start node ``executable`` with ``words`` in ``folder``; what it prints goes to the file ``log``."""
        start = {"executable": executable, "words": words, "environment": dict(environment), "folder": folder}
        return Forked(self, self.ask(start=start, log=log))


def serve() -> None:
    """Import, then answer until the client has gone."""
    end_with_parent(int(sys.argv[1]))
    for name in IMPORTED:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has one thread of these"
    children: set[int] = set()
    server = os.getpid()
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            if not (pid := os.fork()):
                become(**request["start"], log=request["log"], server=server)
            children.add(pid)
            answer = pid
        else:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            children.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(answer), flush=True)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def become(executable: str, words: list[str], environment: dict[str, str], folder: str, log: str, server: int) -> None:
    """Be the node, in a process that was just forked; does not return."""
    try:
        out = os.open(log, os.O_WRONLY | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for there, here in ((null, 0), (out, 1), (out, 2)):
            os.dup2(there, here)
        sys.stdin = open(0)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        end_with_parent(server)
        os.chdir(folder)
        module = importlib.import_module(f"engram.nodes.{executable}")
        sys.argv = [str(module.__file__), *words]
        status = int(module.main() or 0)  # most nodes end their process themselves
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
