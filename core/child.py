"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from engram.core.errors import EngramError
from engram.core.notices import hush_datasets

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec it would be too late


def end_with_parent(parent: int) -> None:
    """Called in a child process: the kernel sends it SIGTERM when ``parent`` dies, even by kill -9.

    If the parent has died already, end now.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def run_spawned[Item, Result](
    function: Callable[[Item], Result], items: Iterable[Item], processes: int, tasks_per_child: int | None = None
) -> Iterator[Result]:
    """Yield ``function`` of each of ``items`` as it is done, by fresh processes that end with this one.

    Args:
        function: of a module, as are the types of items and results: they are pickled.
        processes: how many work at a time.
        tasks_per_child: a process is replaced after so many items; None = never.

    Raises:
        EngramError: a process died, by a signal or for want of memory. The processes of a ``multiprocessing.Pool``
            would be replaced, and its caller would wait for the lost result for ever.
    """
    with spawned_pool(processes, tasks_per_child) as pool:
        for done in as_completed([pool.submit(function, item) for item in items]):
            yield done.result()


@contextmanager
def spawned_pool(
    processes: int, tasks_per_child: int | None = None, niceness: int = 0
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of fresh processes that end with this one and are nicer than it by ``niceness``.

    Raises:
        EngramError: a process died, by a signal or for want of memory.
    """
    context, about = multiprocessing.get_context("spawn"), (os.getpid(), niceness)
    pool = ProcessPoolExecutor(processes, context, _begin, about, max_tasks_per_child=tasks_per_child)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise EngramError("a worker process died (killed, crashed, or out of memory); what it did is lost") from error
    finally:
        pool.shutdown(cancel_futures=True)


def run_apart[T](
    function: Callable[..., T], *args: Any, check: Callable[[], None] = lambda: None, niceness: int = 0
) -> T:
    """Return what ``function`` of ``args`` returns in a fresh process that ends with this one and is nicer.

    ``check`` is called every half second; what it raises ends the process, and is raised.

    Raises:
        EngramError: the process died, by a signal or for want of memory; or what ``function`` raised, another
            exception by its text.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, os.getpid(), niceness, function, args))
    process.start()
    there.close()
    try:
        while not here.poll(0.5):
            check()
        went_well, answer = here.recv()
    except EOFError:
        raise EngramError("a worker process died (killed, crashed, or out of memory); what it did is lost") from None
    finally:
        process.kill()
        process.join()
        here.close()
    if not went_well:
        raise answer
    return answer


def _answer(there: Connection, parent: int, niceness: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    _begin(parent, niceness)
    try:
        there.send((True, function(*args)))
    except EngramError as error:
        there.send((False, error))
    except Exception as error:  # noqa: BLE001 - whatever it is: not every one can be sent as it is
        if not isinstance(error, OSError):  # one of ours, that somebody has to find
            traceback.print_exc()
        there.send((False, EngramError(f"a worker process failed: {type(error).__name__}: {error}")))


def _begin(parent: int, niceness: int) -> None:
    end_with_parent(parent)
    os.nice(niceness)
    hush_datasets()  # what the parent's command has switched off is on again in a fresh process
