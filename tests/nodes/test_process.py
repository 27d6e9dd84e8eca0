"""The end of a node's process, at the instant at which a signal is most in the way."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
import rclpy
from rclpy.executors import ExternalShutdownException

from engram.nodes import process
from engram.runtime import own_process


def test_a_signal_that_reaches_python_only_while_it_ends_does_not_cut_through_the_end(monkeypatch):
    """rclpy ends the context in C; Python's own handler runs later, at worst in the middle of what follows."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ignore, asked = own_process.ignore_signals, []

    def late():
        asked.append(1)
        if len(asked) == 1:
            own_process.interrupt_once(signal.SIGINT, None)  # as Python calls it between two of its instructions
        ignore()

    def node():
        monkeypatch.setattr(own_process, "ignore_signals", late)
        raise ExternalShutdownException

    try:
        assert process._run(node, [], ()) == 0
        assert len(asked) >= 3 and not rclpy.ok()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(("interrupted", "status"), [(True, 0), (False, 1)])
def test_an_interrupt_that_surfaces_as_another_error_is_no_failure(interrupted, status):
    """pybind11 turns a KeyboardInterrupt in the middle of its conversions into a RuntimeError."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def node():
        with suppress(KeyboardInterrupt):
            if interrupted:
                own_process.interrupt_once(signal.SIGINT, None)
        raise RuntimeError("Unable to convert call argument '0' to Python object")

    try:
        assert process._run(node, [], ()) == status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ENDED_IN_A_CALLBACK = """
import signal, threading
from engram.nodes import process
from engram.nodes.base import EngramNode

class Ended(EngramNode):
    held = threading.Condition(threading.Lock())  # as in queue.Queue

    def start(self):
        self.every(0.01, self.take, "take")

    def take(self):
        self.held._lock.acquire()  # as Condition.__enter__: a signal comes before anything protects it
        signal.raise_signal(signal.SIGINT)
        self.held._lock.release()

    def stop(self):
        print("free" if self.held.acquire(timeout=5) else "closed for ever")

process.run(lambda: Ended("ended"))
"""


def test_a_callback_finishes_before_the_node_ends():
    """An interrupt in the midst of it leaves a lock closed that closing the node waits for."""
    command = [sys.executable, "-c", ENDED_IN_A_CALLBACK, "--ros-args", "-p", "autostart:=true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False)
    assert (done.returncode, done.stdout) == (0, "free\n"), done.stderr
