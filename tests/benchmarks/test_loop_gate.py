"""What is measured beside a gate is measured beside one that lives and validates."""

import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import psutil
import pytest

from engram.benchmarks import loop_gate
from engram.benchmarks.loop_gate import GateBeside
from engram.runtime.episode_report import LoopError
from engram.validation.of_learner import GATE

LIVES = "import time; time.sleep(300)"


class Client:
    """Waits as the loop's client does, but not long."""

    node = SimpleNamespace(create_publisher=lambda *about: None)

    def spin(self, seconds):
        pass

    def wait_for(self, condition, timeout_s, what):
        if not condition():
            raise LoopError(f"{what}: not within {timeout_s:g} s")


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """Return what starts a process in place of the gate node, in ``tmp_path``."""
    monkeypatch.setattr(loop_gate, "LOG", tmp_path / "logs" / "gate.log")
    made = []

    def start(code):
        monkeypatch.setattr(loop_gate, "NODE", ("-c", code))
        made.append(GateBeside(Client(), tmp_path, 0))
        return made[-1]

    yield start
    for one in made:
        one.close()


def keep_episode(folder):
    """Keep a result as the gate does."""
    (folder / GATE).mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / GATE / "trials.sqlite", isolation_level=None)) as file:
        file.execute("CREATE TABLE IF NOT EXISTS trials (who, env, task, seed INTEGER PRIMARY KEY, success)")
        file.execute("INSERT INTO trials (who, env, task, success) VALUES ('a', 'b', 'c', 1)")


def becomes(gate, stopped):
    """Tell whether its process is soon ``stopped``, or goes on."""
    process, end = psutil.Process(gate._process.pid), time.monotonic() + 10.0
    while (process.status() == psutil.STATUS_STOPPED) != stopped and time.monotonic() < end:
        time.sleep(0.01)
    return (process.status() == psutil.STATUS_STOPPED) == stopped


def test_a_gate_validates_that_lives_and_whose_episodes_become_more(gate, tmp_path):
    beside = gate(LIVES)
    with pytest.raises(LoopError, match=r"another episode of the gate \(its log: .*gate\.log\): not within 300 s"):
        beside.get_ready()
    keep_episode(tmp_path)
    beside.get_ready()
    for _ in range(2):
        assert becomes(beside, stopped=True)
        with beside.validating():
            assert becomes(beside, stopped=False)
            keep_episode(tmp_path)
    with pytest.raises(LoopError, match="another episode of the gate"), beside.validating():
        pass
    assert becomes(beside, stopped=True)


def test_nothing_is_measured_beside_a_gate_that_ended(gate, tmp_path):
    beside, measured = gate("print('what it said', flush=True)\nraise SystemExit(3)"), []
    beside._process.wait()
    for run in (beside.get_ready, lambda: measured.append(beside.validating().__enter__())):
        with pytest.raises(LoopError, match=r"the gate node ended with code 3; its log: .*gate\.log"):
            run()
    assert not measured and "what it said" in (tmp_path / "logs" / "gate.log").read_text()


def test_a_gate_that_ends_beside_the_loop_is_told_of(gate, tmp_path):
    beside = gate(LIVES)
    with pytest.raises(LoopError, match="the gate node ended with code -9"), beside.validating():
        keep_episode(tmp_path)
        beside._process.kill()
        beside._process.wait()
