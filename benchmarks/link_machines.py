"""The node set on two machines, over the link of :mod:`engram.benchmarks.link_rig`, and a client on the robot's.

It starts what docs/how-to/several_machines.md says, ``engram up sim link:=true`` on the robot's machine and ``engram up
far body:=sim`` on the other.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from engram.app.launch_graph import package_share
from engram.benchmarks.link_rig import LinkRig
from engram.nodes.loop_client import LoopClient, LoopError

FAR_NODES = ("far_link_node", "learner_node", "viewer_node")
QUIET = {"learner_node": {"promote": "manual", "learner.first_episodes": 1000}}
"""Parameters of a trial: it does not train, so that the same policy drives all of it."""


class Machines:
    """The node set on both machines, and a client on the robot's."""

    def __init__(self, rig: LinkRig, folder: Path, domain: int, policy: str, policy_far: bool) -> None:
        self.rig, self.folder, self.domain = rig, folder, domain
        self._cut_to = float("inf")
        self.cuts = 0
        self._children: list[subprocess.Popen[bytes]] = []
        for end in ("body", "far"):
            (folder / end).mkdir()
        file = _parameter_file(folder, policy_far)
        words = ("link:=true", "accept:=none", f"policy:={policy}", f"lockstep:={str(not policy_far).lower()}", file)
        self._up("far", "far", "body:=sim", f"policy:={policy}", "port:=18080", file)
        if policy_far:
            self._up("body", _launch_file(folder / "body", lambda node: node != "policy_node"), *words)
            self._up("far", _launch_file(folder / "far", lambda node: node == "policy_node"), *words)
        else:
            self._up("body", "sim", *words)
        self.client = LoopClient(domain=domain, idle=self._idle)

    def _up(self, end: str, *words: str) -> None:
        command = [sys.executable, "-m", "engram.app.cli", "up", *words]
        command += ["--domain", str(self.domain), "--end-timeout-s", "30"]
        with (self.folder / f"{end}{len(self._children)}.log").open("w") as log:
            environment = {"HOME": str(self.folder / end)}
            self._children.append(self.rig.start(end, command, environment, log.fileno()))

    def cut(self, for_s: float) -> None:
        """Cut the link for a while."""
        self.rig.set(cut=True)
        self.cuts += 1
        self._cut_to = time.monotonic() + for_s

    def _idle(self) -> None:
        now = time.monotonic()
        if now >= self._cut_to:
            self._cut_to = float("inf")
            self.rig.set(cut=False)
        for child in self._children:
            if child.poll() is not None:
                raise LoopError(f"engram up ended with {child.returncode}:\n{self.logs()}")

    def whole(self) -> bool:
        """Whether no cut is under way, and either side says that the link is up."""
        up = all(self.values(node).get("link") == "up" for node in ("link_node", "far_link_node"))
        return self._cut_to == float("inf") and up

    def logs(self) -> str:
        """Return the last lines of both machines."""
        return "".join(f"--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(self.folder.glob("*.log")))

    def values(self, node: str) -> dict[str, str]:
        """Return what the newest diagnostic of ``node`` says."""
        said = self.client.diagnostics.get(node)
        return dict(said.values) if said is not None else {}

    def counts(self, node: str, begin: str, end: str = "") -> dict[str, int]:
        """Return the counters of ``node`` whose names have that begin and end, by what lies between."""
        values = self.values(node).items()
        return {
            key[len(begin) : len(key) - len(end) or None]: int(value)
            for key, value in values
            if key.startswith(begin) and key.endswith(end)
        }

    def close(self) -> None:
        """End everything, the link mended, so that nothing waits for the other side."""
        self.rig.set(cut=False)
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
        for child in self._children:
            child.wait(120)
        self.client.close()


@contextmanager
def machines(rig: LinkRig, folder: Path, domain: int, policy: str, policy_far: bool) -> Iterator[Machines]:
    """Start the node set, wait until all of it is active, and end it."""
    with ExitStack() as stack:
        stack.enter_context(rig.inside("body"))
        made = Machines(rig, folder, domain, policy, policy_far)
        stack.callback(made.close)
        try:
            made.client.wait_active(300.0)
            made.client.wait_for(
                lambda: all(made.values(n).get("state") == "active" for n in FAR_NODES), 300.0, "far nodes are active"
            )
        except LoopError as error:
            raise LoopError(f"{error}\n{made.logs()}") from None
        yield made


def _parameter_file(folder: Path, policy_far: bool) -> str:
    """Write sim.yaml with QUIET in it, and return the launch argument that names it."""
    sections = yaml.safe_load((package_share("engram") / "config" / "sim.yaml").read_text())
    for node, values in QUIET.items():
        sections[f"/**/{node}"]["ros__parameters"].update(values)
    if policy_far:
        sections["/**/policy_node"]["ros__parameters"]["image_transport"] = "compressed"
    path = folder / "parameters.yaml"
    path.write_text(yaml.safe_dump(sections))
    return f"params_file:={path}"


def _launch_file(folder: Path, keep: Callable[[str], bool]) -> str:
    """Write sim.launch.yaml, and what it includes, with the nodes that ``keep`` says; return its path."""
    for name in ("sim.launch.yaml", "loop.launch.yaml"):
        actions = yaml.safe_load((package_share("engram") / "launch" / name).read_text())["launch"]
        kept = [action for action in actions if "node" not in action or keep(action["node"]["exec"])]
        (folder / name).write_text(yaml.safe_dump({"launch": kept}, sort_keys=False))
    return str(folder / "sim.launch.yaml")
