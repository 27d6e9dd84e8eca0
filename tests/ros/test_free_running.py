"""The whole node set in real time, as ``engram up`` starts it, and a node of it killed in the middle."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engram.nodes.loop_client import LoopClient
from engram.runtime.episode_report import OUTCOMES
from tests.ros.processes import ROOT

DOMAIN = int(os.environ["ROS_DOMAIN_ID"])
pytestmark = [pytest.mark.ros, pytest.mark.render, pytest.mark.slow, pytest.mark.timeout(900)]


class Up:
    """``engram up sim lockstep:=false`` with a home of its own, and a client that watches it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "up.log"
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
        environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": path}
        words = ["up", "sim", "lockstep:=false", "viewer:=false", "learner:=false"]
        words += ["policy:=tests.ros.policies:EyesAndNoise", "--domain", str(DOMAIN), "--discovery", "LOCALHOST"]
        words += ["--end-timeout-s", "30"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engram.app.cli", *words], env=environment, stdout=log, stderr=log
            )
        self.client = LoopClient(domain=DOMAIN, idle=self._alive)

    def _alive(self) -> None:
        assert self.process.poll() is None, f"engram up ended:\n{self.log.read_text()[-3000:]}"

    def pid(self, name: str) -> int:
        """Return the process id with which ``name`` was started last."""
        return int(re.findall(rf"\[{name}\] +started, pid (\d+)", self.log.read_text())[-1])

    def value(self, name: str, key: str) -> str:
        """Return a value of a node's newest diagnostic."""
        condition = self.client.diagnostics.get(name)
        return condition.values.get(key, "") if condition is not None else ""

    def refused(self) -> dict[str, int]:
        """Return how many messages each node has refused because another process wrote them."""
        said = {name: dict(condition.values) for name, condition in self.client.diagnostics.items()}
        return {
            f"{name}: {key}": int(value)
            for name, values in said.items()
            for key, value in values.items()
            if "refused from other writers" in key
        }

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@pytest.fixture
def up(tmp_path, monkeypatch):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    made = Up(tmp_path)
    yield made
    made.client.close()
    made.end()


def test_episodes_in_real_time_after_the_memory_was_killed_and_after_all_was_cleaned_up(up):
    client = up.client
    client.wait_active(600)
    first = client.run_episode("reach", 0, 300)
    assert first.outcome in OUTCOMES, first
    client.wait_for(lambda: int(up.value("memory_node", "durable sequence") or 0) > 0, 60, "what was seen is durable")
    known = int(up.value("memory_node", "durable sequence"))
    killed = up.pid("memory_node")

    os.kill(killed, signal.SIGKILL)
    client.wait_for(lambda: up.pid("memory_node") != killed, 60, "engram up starts the node again")
    client.diagnostics.pop("memory_node")
    client.wait_for(lambda: up.value("memory_node", "state") == "active", 300, "the manager activates it again")
    client.wait_active(60)
    assert int(up.value("memory_node", "sequence")) >= known  # nothing durable was lost
    second = client.run_episode("press_button", 1, 300)
    assert second.outcome in OUTCOMES, second
    client.wait_for(lambda: int(up.value("memory_node", "scenes") or 0) > 0, 60, "the new memory sees")

    # DDS misses the killed memory only after a while; until then the verdicts of the new one may be refused.
    client.wait_for(lambda: client.node.count_publishers("verdict") == 1, 60, "the killed memory's writers are gone")
    client.diagnostics.pop("policy_node")
    client.wait_for(lambda: "policy_node" in client.diagnostics, 60, "the policy says what it has counted")
    refused = up.refused()
    began = up.pid("sim_node"), up.pid("safety_node")
    assert client.trigger("lifecycle_manager/shutdown", 60)[0]
    nodes = ("sim_node", "safety_node", "policy_node", "memory_node", "perception_node")
    client.wait_for(
        lambda: {up.value(name, "state") for name in nodes} == {"unconfigured"}, 120, "nodes are cleaned up"
    )
    left = {
        topic: client.node.count_publishers(topic) for topic in ("/clock", "command", "task/status", "safety/stopped")
    }
    assert set(left.values()) == {0}, left  # a latched one would go on telling what it said last
    assert client.trigger("lifecycle_manager/startup", 60)[0]
    client.wait_active(300)
    third = client.run_episode("reach", 2, 300)
    assert third.outcome in OUTCOMES, third
    assert (up.pid("sim_node"), up.pid("safety_node")) == began
    assert up.refused() == refused  # each hears whom it heard before
