"""The whole promise at work: practise on a robot, prove it in simulation, drive it; refuse what is bad, go back.

    python -m engram.benchmarks.promise [--quick]

All nodes of ``engram up robot`` run, learner and gate with them; a simulation that differs from the one the policy was
trained in plays the robot (:mod:`engram.benchmarks.robot_twin`). The safety filter lets the robot's full speed through,
as in the gate's simulation. What happens:

1. The robot works on one kind of goal. The memory alone says what went well.
2. The gate finds in the robot's record how it differs from the simulation. In a simulation that differs likewise it is
   searched for how the policy has to correct its motions, in every task and with that simulation's truth as the judge.
   The learner makes what was found part of the weights, and the gate tries them. Meanwhile the robot rests, so that two
   cores suffice. What the gate promotes drives as a canary, and the robot works again, until the canary is approved for
   all robots.
3. It rests once more, in case that a second candidate is promoted. Then the robot is knocked: it stands turned from now
   on, and its commands are no longer late. The learner sees goals fail, and rolls back.
4. A ruined candidate is put into the learner's folder. Nobody has tried it: it is refused. The gate tries it: it is
   refused with the gate's reason.

Finished goals and the learner's folder are kept in ``work``; the time line is drawn as a picture. Prints a table; the
last line is JSON, which also goes to benchmarks/results/promise.json.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load, save

from engram.benchmarks.promise_story import Happening, Story, figures, picture
from engram.benchmarks.report import RESULTS, save_report
from engram.benchmarks.robot_twin import FULL_SPEED, Twin, TwinSettings
from engram.core.arrays import positive_int
from engram.core.durable import write_atomic
from engram.core.provenance import machine
from engram.core.types import PolicyManifest
from engram.learning.weights.keys import PUBLIC, SIGNING, make_signing_key, trust
from engram.learning.weights.library import FILE, INSERT_VERSION, WeightsLibrary, checksum
from engram.learning.weights.manifest import make_manifest, manifest_to_json
from engram.nodes import qos
from engram.nodes.learner_client import LearnerClient
from engram.runtime.episode_report import LoopError
from engram.sim.gap_world import world_gap
from engram.sim.twin import GAP_FILE
from engram.validation.following import GAP
from engram.validation.gate import OPEN
from engram.validation.of_learner import GATE
from engram.validation.trials import NOMINAL
from engram_interfaces.msg import GateVerdict
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg

DATA = Path(".local/share/engram/twin")
"""Of the robot, in its home."""
RUINED = "ruined"
"""Version of the ruined candidate: the weights of what drives, every sign turned."""
ANSWER_S = 600.0
"""Longest wait for an answer of the learner [s]."""


@dataclass(frozen=True)
class PromiseBenchmark:
    """What happens, and for how long at most."""

    quick: bool = False
    """At most ten goals a part."""
    policy: str = "base"
    """Where learning begins."""
    task: str = "stack"
    """The kind of goal that the robot works on."""
    on: str = "late"
    """The gap that the robot has; nobody tells the gate."""
    knocked: str = "knocked"
    """The gap that it has once it is knocked."""
    worked: int = 20
    """Goals before the robot rests, and again afterwards."""
    watched: int = 60
    """Most goals until what drives is rolled back."""
    first_seed: int = 30_000
    """Scene of the first goal."""
    budget: int = 600
    """Most pairs of episodes of the gate on a task."""
    workers: int = 2
    """Processes of the gate, at the lowest priority."""
    goal_s: float = 20.0
    """Time limit of a goal [s]."""
    rest_s: float = 3600.0
    """Longest first rest: so long is waited for something better to drive [s]."""
    rest_again_s: float = 1500.0
    """Longest second rest [s]."""
    domain: int = 46
    """ROS_DOMAIN_ID of the nodes."""
    work: Path = Path("runs/promise")
    """Folder of the robot's home, the logs and the picture."""
    output: Path = RESULTS / "promise.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("worked", "watched", "budget", "workers"):
            positive_int(f"PromiseBenchmark.{name}", getattr(self, name))
        for name in (self.on, self.knocked):
            world_gap(name)  # else the simulation would refuse it once all nodes run

    def most(self, goals: int) -> int:
        """Return how many goals a part has at most."""
        return min(10, goals) if self.quick else goals


class Promise:
    """The running robot, and what is told of it."""

    def __init__(self, config: PromiseBenchmark, twin: Twin) -> None:
        self.config, self.twin, self.loop, self.story = config, twin, twin.loop, Story()
        self.verdicts: dict[str, GateVerdict] = {}  # newest of each version
        self.learner = LearnerClient(domain=config.domain)
        self.began = time.monotonic()
        self.candidate = ""  # the newest
        self.promoted = ""  # what the learner has announced last for driving; it drives from the next step of a goal on
        node = self.loop.client.node
        node.create_subscription(GateVerdict, "policy/gate", self._on_verdict, qos.LATCHED)
        node.create_subscription(PolicyManifestMsg, "policy/candidate", self._on_manifest, qos.LATCHED)
        node.create_subscription(PolicyManifestMsg, "policy/manifest", self._on_manifest, qos.MANIFEST)
        self._drove = ""

    def _on_verdict(self, msg: GateVerdict) -> None:
        told = self.verdicts.get(msg.candidate)
        self.verdicts[msg.candidate] = msg
        if msg.decision != OPEN and (told is None or told.decision != msg.decision):
            self.tell("verdict", f"{msg.decision}: {msg.reason}", msg.candidate)

    def _on_manifest(self, msg: PolicyManifestMsg) -> None:
        if msg.stage == "candidate" and msg.version != self.candidate:
            self.candidate = msg.version
            self.tell("candidate", "", msg.version)
        if msg.stage in ("canary", "approved"):
            self.promoted = msg.version

    @property
    def drives(self) -> str:
        """The version that drives."""
        return self.loop.value("policy_node", "policy version")

    def tell(self, what: str, text: str, version: str = "") -> None:
        """Note that something happened."""
        at = round(time.monotonic() - self.began, 1)
        self.story.happenings.append(Happening(what, text, version, len(self.story.goals), at))
        print(f"{at:.0f} s, goal {len(self.story.goals)}: {what} {version} {text}", file=sys.stderr, flush=True)

    def work(self, task: str, most: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Give goals of ``task`` until ``until``, at most ``most``; tell whether it came to that."""
        for _ in range(most):
            if until():
                return True
            self.goal(task)
        return until()

    def rest(self, known: set[str], longest_s: float) -> bool:
        """Wait until a version is promoted that is none of ``known``; tell whether it came to that."""
        self.tell("rests", "")
        try:
            self.loop.client.wait_for(lambda: self.promoted not in {"", *known}, longest_s, "something better to drive")
        except LoopError as error:
            self.tell("nothing promoted", str(error))
            return False
        return True

    def judged(self) -> bool:
        """Tell whether the gate has told what becomes of the newest candidate."""
        return not self.candidate or self.verdicts.get(self.candidate, GateVerdict(decision=OPEN)).decision != OPEN

    def goal(self, task: str) -> None:
        """Give one goal of ``task``."""
        self._see_what_drives()
        seed = self.config.first_seed + len(self.story.goals)
        ended = self.twin.goal(task, seed)
        version = self._see_what_drives()
        at = round(time.monotonic() - self.began, 1)
        self.story.goals.append(ended | {"task": task, "version": version, "at_s": at})

    def _see_what_drives(self) -> str:
        version = self.drives
        if version not in ("", self._drove):
            self._drove = version
            self.tell("drives", "", version)
        return self._drove

    # -- the parts -------------------------------------------------------------------------------------------------

    def learn(self) -> bool:
        """Work and rest until the gate has let a candidate drive, and perhaps a second one; tell whether one does."""
        goals, known = self.config.most(self.config.worked), {self.drives}
        self.work(self.config.task, goals)
        if not self.rest(known, self.config.rest_s):
            return False
        known.add(self.promoted)
        self.work(self.config.task, goals)
        self.rest(known, self.config.rest_again_s)
        return True

    def knock(self, gap: Path) -> None:
        """Let the robot stand differently; work until what drives is rolled back."""
        gap.write_text(self.config.knocked)
        driving = self.promoted
        before = {one.version for one in self.story.happenings if one.what == "drives"} - {driving}
        self.tell("knocked", self.config.knocked)
        gone = self.work(self.config.task, self.config.most(self.config.watched), lambda: self.promoted in before)
        self.tell("rolled back" if gone else "not rolled back", self.promoted, driving)

    def sabotage(self, home: Path) -> None:
        """Offer a ruined candidate, before anybody has tried it, and after the gate has."""
        self.loop.client.wait_for(self.judged, self.config.rest_s, f"a verdict on {self.candidate}")
        folder = home / DATA / "learner"
        library = WeightsLibrary(folder / "weights", read_only=True)
        data, manifest = library.get(library.current)
        data = save({name: -value for name, value in load(data).items()})
        smuggle(folder / "weights", data, make_manifest(data, RUINED, lineage=manifest.lineage))
        self.tell("sabotage", "", RUINED)
        self.offer("before it was tried")
        found = folder / GATE / GAP
        on = str(found) if found.exists() else NOMINAL
        words = ["validate", RUINED, "--learner", str(folder), "--against", self.config.policy, "--on", on]
        done = subprocess.run(
            [sys.executable, "-m", "engram.app.cli", *words], capture_output=True, text=True, env=self.loop.environment
        )
        lines = (done.stdout if done.returncode in (0, 1) else done.stderr).strip().splitlines()
        self.tell("tried", lines[-1][:200] if lines else "", RUINED)
        self.offer("after it was tried")

    def offer(self, when: str) -> None:
        """Ask the learner to let the ruined candidate drive."""
        taken, why = self.learner.promote(RUINED, "sabotage", ANSWER_S)
        self.tell("taken" if taken else "refused", why, RUINED)
        self.story.refusals[when] = "" if taken else why


def smuggle(library: Path, data: bytes, manifest: PolicyManifest) -> None:
    """Put weights into the folder of a running learner's library, past the learner."""
    write_atomic(library / f"{manifest.sha256}.safetensors", data)
    text = manifest_to_json(manifest)
    with closing(sqlite3.connect(library / FILE)) as file, file:
        file.execute(INSERT_VERSION, (manifest.version, text, checksum(manifest.version, text)))


def settings(config: PromiseBenchmark, gap: Path) -> TwinSettings:
    """Return the nodes as they run here: with a key that the robot trusts, and a second robot that does not run."""
    keys = config.work / "nodes" / "home" / DATA / "keys"
    if not (keys / SIGNING).exists():
        make_signing_key(keys)
        trust(keys, keys / PUBLIC)
    values = {
        "policy": config.policy,
        "accept": "approved",
        "signing_key": str((keys / SIGNING).resolve()),
    }
    parameters = {
        **FULL_SPEED,
        "learner_node": (
            ("learner.updates_per_episode", 0),  # nothing is imitated
            ("weights_for", ["twin", "robot1"]),
        ),
        "gate_node": (
            ("on", NOMINAL),
            ("identify", True),
            ("practise", True),
            ("budget", config.budget),
            ("workers", config.workers),
        ),
    }
    world = "engram.sim.twin:ChangingWorkcell"
    environment = {GAP_FILE: str(gap.resolve())}
    return TwinSettings(config.work, config.domain, values, parameters, world, environment, config.goal_s)


def tell_story(config: PromiseBenchmark) -> Story:
    """Let everything happen; return it."""
    config.work.mkdir(parents=True, exist_ok=True)
    gap = config.work / "gap.txt"
    gap.write_text(config.on)
    twin = Twin(settings(config, gap))
    try:
        twin.loop.wait_active()
        promise = Promise(config, twin)
        try:
            if promise.learn():
                promise.knock(gap)
            promise.sabotage(config.work / "nodes" / "home")
        finally:
            promise.learner.close()
            kept = config.work / "story.json"
            kept.write_text(json.dumps(asdict(promise.story), indent=1))
        return promise.story
    finally:
        twin.close()


def main(config: PromiseBenchmark | None = None) -> None:
    """Let it happen, print, save."""
    config = config or tyro.cli(PromiseBenchmark)
    where = machine()
    story = tell_story(config)
    table = Table("s", "goals", "what", "version", "", title="What happened")
    for one in story.happenings:
        table.add_row(f"{one.at_s:.0f}", str(one.goals), one.what, one.version, one.text)
    Console(width=160, stderr=True).print(table)
    picture(config.work / "promise.svg", story)
    told = replace(config, work=Path(config.work.name))
    content = {"happenings": [asdict(one) for one in story.happenings], "goals": story.goals}
    save_report(config.output, "promise", where, told, figures=figures(story), **content)


if __name__ == "__main__":
    main()
