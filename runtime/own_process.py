"""What a process sets for itself: how it shares the processor, and that signals end it once."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

SWITCH_INTERVAL_S = 0.00005
"""How long a thread keeps Python's lock while another wants it [s]: with Python's own 5 ms, a worker and the thread
that receives messages make each other wait for longer than a message takes."""
PR_SET_TIMERSLACK = 29
_MONOTONIC, _IN_A_THREAD = 1, 2  # CLOCK_MONOTONIC, SIGEV_THREAD
TIMER_SLACK_NS = 1000
"""How late the kernel may end a wait [ns]: its 50 us would double the switch interval."""
FINISH_S = 5.0
"""How long a callback may go on after a SIGINT before it is interrupted [s]."""
LEAVE_S = 45.0
"""How long a process may take to close what it has [s]; then it ends anyway and says where it hangs."""

_finish_s = 0.0  # how long a SIGINT waits for what runs [s]


def share_processor(niceness: int) -> None:
    """Hand over Python's lock often, and raise the niceness of every thread; those that begin later inherit it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for thread in map(int, os.listdir("/proc/self/task")):
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, now + niceness))


def import_ahead(modules: Iterable[str]) -> None:
    """Import what takes seconds, in the calling thread; a module that cannot be imported is left to whoever needs it.

    Never in a thread of its own: as soon as ``torch`` is in ``sys.modules``, SciPy asks it for its ``Tensor``, and
    fails in every other thread until torch has been imported to its end.
    """
    for module in modules:
        with contextlib.suppress(Exception):  # whoever needs it imports it again, and is told
            importlib.import_module(module)


def wake_in_time() -> None:
    """Let the kernel end waits in time; threads that begin later inherit it."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)


def interrupt_once(number: int, frame: object) -> None:
    """Interrupt what runs, once: a second SIGINT on the heels of the first would cut through what the first began.

    Within :func:`finishing_callbacks` it only leaves its mark, for :func:`interrupted` to tell.
    """
    ignore_signals()
    if not _finish_s:
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, _finish_s)


@contextlib.contextmanager
def finishing_callbacks(within_s: float = FINISH_S) -> Iterator[None]:
    """Let a SIGINT wait until the callback that runs is done, ``within_s`` [s] at most.

    An exception out of nowhere may leave a lock closed for ever: Python's own ``threading.Condition`` takes its lock in
    one call and is protected from the next instruction on. Whoever closes the node would then wait for that lock.
    """
    global _finish_s
    _finish_s = within_s
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _finish_s = 0.0


@contextlib.contextmanager
def leaving(within_s: float = LEAVE_S) -> Iterator[None]:
    """End the process if this takes more than ``within_s`` [s], with what each of its threads was doing on stderr."""
    faulthandler.dump_traceback_later(within_s, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class _TimerEvent(ctypes.Structure):
    """``struct sigevent`` of glibc."""

    _fields_: ClassVar[list[Any]] = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("unused", ctypes.c_char * 32),
    ]


@contextlib.contextmanager
def ending_within(seconds: int, status: int) -> Iterator[None]:
    """End the process with ``status`` if this takes longer than so many seconds [s]; once all is durable.

    Not even Python's lock is needed: Fast DDS may wait for ever, holding it, when participants leave at the same time
    (eProsima/Fast-DDS issue 6513).
    """
    libc = ctypes.CDLL(None)
    timer, at = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, seconds, 0)
    event = _TimerEvent(status, 0, _IN_A_THREAD, ctypes.cast(libc._exit, ctypes.c_void_p), None)
    armed = libc.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0
    if armed:
        libc.timer_settime(timer, 0, ctypes.byref(at), None)
    try:
        yield
    finally:
        if armed:
            libc.timer_delete(timer)


def interrupted() -> bool:
    """Tell whether a SIGINT has come."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def ignore_signals() -> None:
    """Launchers send a second SIGINT during teardown; it must not cut off a commit, nor the interpreter's own end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
