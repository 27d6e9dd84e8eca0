"""What a process sets for itself: how it shares the processor, and that signals end it once."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
from typing import NoReturn

SWITCH_INTERVAL_S = 0.00005
"""How long a thread keeps Python's lock while another wants it [s]: with Python's own 5 ms, a worker and the thread
that receives messages make each other wait for longer than a message takes."""
PR_SET_TIMERSLACK = 29
TIMER_SLACK_NS = 1000
"""How late the kernel may end a wait [ns]: its 50 us would double the switch interval."""


def share_processor(niceness: int) -> None:
    """Hand over Python's lock often, and raise the niceness of every thread; those that begin later inherit it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for thread in map(int, os.listdir("/proc/self/task")):
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, now + niceness))


def load_ahead(*modules: str) -> None:
    """Import what takes seconds while the process gets to know the others; whoever needs it waits for the rest.

    Modules of libraries, or one that imports these alone, as ``engram.policies``: two threads that import modules which
    import each other may see one half-made.
    """

    def load() -> None:
        for module in modules:
            with contextlib.suppress(Exception):  # whoever needs it imports it again, and is told
                importlib.import_module(module)

    threading.Thread(target=load, name="imports", daemon=True).start()


def wake_in_time() -> None:
    """Let the kernel end waits in time; threads that begin later inherit it."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)


def interrupt_once(number: int, frame: object) -> NoReturn:
    """Interrupt what runs, once: a second SIGINT on the heels of the first would cut through what the first began."""
    ignore_signals()
    raise KeyboardInterrupt


def interrupted() -> bool:
    """Tell whether a SIGINT has come."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def ignore_signals() -> None:
    """Launchers send a second SIGINT during teardown; it must not cut off a commit, nor the interpreter's own end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
