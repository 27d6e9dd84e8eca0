"""One trial of the link: the node set on two machines, episodes, and what has crossed the link in the end.

It starts what docs/how-to/several_machines.md says, ``engram up sim link:=true`` on the robot's machine and ``engram up
far body:=sim`` on the other, and gives the goals on the robot's machine.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engram.app.launch_graph import package_share
from engram.benchmarks.link_rig import LinkRig
from engram.learning.experience.spool import Spool
from engram.learning.experience.store import ExperienceStore
from engram.nodes.loop_client import EpisodeReport, LoopClient, LoopError

FAR_NODES = ("far_link_node", "learner_node", "viewer_node")
CAMERAS_OF = "images of "
"""How the names of the page's counters of images begin."""
EPISODE_TIMEOUT_S = 120.0
"""An episode without an outcome after so long has failed [s], wall clock."""
QUIET = {"learner_node": {"promote": "manual", "learner.first_episodes": 1000}}
"""Parameters of a trial: it does not train, so that the same policy drives all of it."""


@dataclass(frozen=True)
class Condition:
    """What the link does, each way."""

    name: str
    loss: float = 0.0
    """Share of the Ethernet frames that is lost."""
    delay_s: float = 0.0
    """Delay [s]."""
    cut_after_s: float = 0.0
    """Cut the link so long after each goal was given [s]; 0: never."""
    cut_s: float = 10.0
    """Length of a cut [s]."""
    policy_far: bool = False
    """Run the policy on the other machine, in real time; it is meant to be beside the body."""


@dataclass
class Trial:
    """What came out."""

    condition: Condition
    episodes: list[EpisodeReport] = field(default_factory=list)
    cuts: int = 0
    recorded: int = 0
    """Control steps that the robot's machine has written to its spool."""
    stored: int = 0
    """Control steps in the other machine's experience store."""
    unacknowledged: int = 0
    caught_up_s: float = 0.0
    """From the end of the last episode until the robot had the receipt of every step [s]."""
    images_sent: dict[str, int] = field(default_factory=dict)
    images_shown: dict[str, int] = field(default_factory=dict)
    wall_s: float = 0.0
    """From the first goal to the last outcome [s]."""
    lost: dict[str, int] = field(default_factory=dict)
    """How often each side's diagnostics said that the link was lost."""
    restored: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Control steps of the episodes, as their outcomes tell."""
        return sum(episode.steps for episode in self.episodes)

    @property
    def succeeded(self) -> int:
        """Number of episodes that succeeded."""
        return sum(episode.outcome == "succeeded" for episode in self.episodes)

    def arrived(self, camera: str) -> float:
        """Return the share of a camera's compressed images that the page got."""
        return self.images_shown.get(camera, 0) / max(1, self.images_sent.get(camera, 0))


def trial_from(values: Mapping[str, Any]) -> Trial:
    """Return the trial that ``dataclasses.asdict`` has taken apart."""
    episodes = [EpisodeReport(**episode) for episode in values["episodes"]]
    return Trial(**{**values, "condition": Condition(**values["condition"]), "episodes": episodes})


class Machines:
    """The node set on both machines, and a client on the robot's."""

    def __init__(self, rig: LinkRig, folder: Path, domain: int, policy: str, policy_far: bool) -> None:
        self.rig, self.folder, self.domain = rig, folder, domain
        self._cut_from = self._cut_to = float("inf")
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

    def cut(self, after_s: float, for_s: float) -> None:
        """Cut the link once, a while from now."""
        self._cut_from = time.monotonic() + after_s
        self._cut_to = self._cut_from + for_s

    def _idle(self) -> None:
        now = time.monotonic()
        if now >= self._cut_from:
            self._cut_from = float("inf")
            self.rig.set(cut=True)
            self.cuts += 1
        if now >= self._cut_to:
            self._cut_to = float("inf")
            self.rig.set(cut=False)
        for child in self._children:
            if child.poll() is not None:
                raise LoopError(f"engram up ended with {child.returncode}:\n{self.logs()}")

    def whole(self) -> bool:
        """Whether no cut is under way or to come."""
        return self._cut_to == float("inf")

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


def run_trial(
    condition: Condition,
    goals: list[tuple[str, int]],
    folder: Path,
    *,
    domain: int,
    policy: str = "base",
    seed: int = 0,
) -> Trial:
    """Run the episodes ``goals``, (task, seed) each, over a link of ``condition``, bad from the first packet on."""
    trial = Trial(condition)
    with LinkRig(seed) as rig:
        rig.set(loss=condition.loss, delay_s=condition.delay_s)
        with machines(rig, folder, domain, policy, condition.policy_far) as running:
            client = running.client
            shown_before = running.counts("viewer_node", CAMERAS_OF)
            sent_before = running.counts("link_node", "color images of ")
            began = time.monotonic()
            for task, number in goals:
                if condition.cut_after_s:
                    running.cut(condition.cut_after_s, condition.cut_s)
                trial.episodes.append(_episode(running, task, number))
                client.wait_for(running.whole, 60.0, "the cut is over")
            trial.wall_s = time.monotonic() - began
            if not condition.policy_far:
                _wait_for_receipts(running, trial)
            client.spin(3.0)  # the newest counters
            trial.images_shown = _less(running.counts("viewer_node", CAMERAS_OF), shown_before)
            trial.images_sent = _less(running.counts("link_node", "color images of "), sent_before)
            for node in ("link_node", "far_link_node"):
                trial.lost[node] = int(running.values(node).get("link lost", 0))
                trial.restored[node] = int(running.values(node).get("link restored", 0))
            trial.cuts, trial.frames = running.cuts, rig.counts()
    if not condition.policy_far:
        _count_experience(folder, trial)
    return trial


def _episode(running: Machines, task: str, seed: int) -> EpisodeReport:
    try:
        return running.client.run_episode(task, seed, EPISODE_TIMEOUT_S)
    except LoopError as error:
        return EpisodeReport(task, seed, 0, "", "no outcome", str(error), 0, EPISODE_TIMEOUT_S)


def _wait_for_receipts(running: Machines, trial: Trial) -> None:
    began = time.monotonic()
    running.client.spin(2.0)  # until the diagnostics have the last step

    def stored() -> bool:
        recorded = int(running.values("policy_node").get("experience", 0))
        return int(running.values("learner_node").get("stored transitions", 0)) >= recorded > 0

    running.client.wait_for(stored, 120.0, "everything that was recorded is stored")
    trial.caught_up_s = time.monotonic() - began


def _count_experience(folder: Path, trial: Trial) -> None:
    """Look into spool and store, both closed by their nodes."""
    shared = ".local/share/engram/sim-robot0"
    spool = Spool(folder / "body" / shared / "spool", "robot0")
    trial.recorded, trial.unacknowledged = spool.durable, len(spool)
    spool.close()
    store = ExperienceStore(folder / "far" / shared / "learner/experience")
    trial.stored = store.size()
    store.close()


def _less(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items()}


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
