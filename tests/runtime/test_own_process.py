"""What a process sets for itself."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from engram.runtime import own_process
from engram.runtime.own_process import import_ahead


@pytest.fixture
def handlers():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, own_process.interrupt_once)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_callback_that_finishes_is_not_interrupted_and_one_that_does_not_is(handlers):
    with own_process.finishing_callbacks(0.1):
        signal.raise_signal(signal.SIGINT)
        assert own_process.interrupted()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)
    time.sleep(0.2)  # nothing is left that interrupts


def test_without_callbacks_an_interrupt_comes_at_once(handlers):
    with own_process.finishing_callbacks(0.1):
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_process_that_does_not_get_done_says_where_it_hangs():
    code = """
import threading
from engram.runtime import own_process
def wait_for_a_lock(): threading.Event().wait()
with own_process.leaving(0.2): wait_for_a_lock()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "in wait_for_a_lock" in done.stderr


def test_modules_are_imported_in_the_calling_thread_and_one_that_is_missing_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import threading; THREAD = threading.current_thread()")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    import_ahead(("no_such_module", "slow_to_load"))
    assert sys.modules["slow_to_load"].THREAD is threading.current_thread()
    assert set(sys.modules) - before == {"slow_to_load"}
    del sys.modules["slow_to_load"]


def test_a_process_ends_with_its_status_although_a_library_keeps_pythons_lock():
    code = """
import ctypes
from engram.runtime import own_process
with own_process.ending_within(1, 9): pass
ctypes.PyDLL(None).sleep(2)
with own_process.ending_within(1, 7): ctypes.PyDLL(None).sleep(60)
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (7, "") and time.monotonic() - began < 40
