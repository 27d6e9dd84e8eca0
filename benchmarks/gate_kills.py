"""kill -9 of the gate, of its workers and of the learner's library of weights: what is lost, doubled or wrong?

    python -m engram.benchmarks.gate_kills [--quick]

The gate and its workers are killed at random instants while ``engram validate`` judges a candidate, and it is started
again until it has decided. Its verdict and its results then have to be those of a run that nobody killed. The library
is killed while versions are added, promoted and rolled back. It then has to hold every change that was told to be
durable, and the one that was being made whole or not at all. Prints a table; the last line is JSON, which also goes to
benchmarks/results/gate_kills.json.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save

from engram.benchmarks.gate_kills_writer import changes
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.errors import EngramError
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest
from engram.policies.checkpoint import WEIGHTS
from engram.policies.opening import open_policy
from engram.runtime.factories import policy_folder
from engram.validation.of_learner import GATE

OWN = ("seconds", "episodes_run", "machine", "commit")
"""What a verdict says of its own run."""
LONGEST_S = 600.0
"""Longest wait for a process that nobody kills [s]."""
ORPHANS_S = 15.0
"""So long after the gate was killed its workers must be gone [s]."""


@dataclass(frozen=True)
class GateKillsBenchmark:
    """How often each is killed."""

    quick: bool = False
    """2 kills of each."""
    kills: int = 34
    """Kills of the gate, of its workers, and of the library, each."""
    budget: int = 30
    """Pairs of episodes until the gate decides."""
    workers: int = 2
    """Processes of the gate."""
    seed: int = 0
    """Of the instants."""
    work: Path = Path("runs/gate_kills")
    """Folder for what is killed, in a folder ``killed`` of its own, which is emptied first."""
    output: Path = RESULTS / "gate_kills.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("kills", "budget", "workers"):
            positive_int(f"GateKillsBenchmark.{name}", getattr(self, name))

    @property
    def count(self) -> int:
        """Kills of each."""
        return 2 if self.quick else self.kills


@dataclass
class Account:
    """What came of the kills."""

    kills: dict[str, int] = field(default_factory=lambda: {"gate": 0, "worker": 0, "library": 0})
    verdicts: int = 0
    """Validations that came to an end after kills."""
    wrong: list[str] = field(default_factory=list)
    """What was lost, doubled or wrong, in words."""
    orphans: int = 0
    """Kills of the gate after which a worker ran on."""


def make_learner(folder: Path, candidates: Sequence[str] = ("candidate",)) -> None:
    """Make a learner's folder: what drives is ``base``, candidates differ from it by one or more in a million."""
    weights, lineage = load_file(policy_folder("base") / WEIGHTS), open_policy("base").lineage
    library = WeightsLibrary(folder / "weights")
    for number, version in enumerate(("v0", *candidates)):
        data = save({name: value * np.float32(1.0 + 1e-6 * number) for name, value in weights.items()})
        library.add(data, make_manifest(data, version, lineage=lineage))
    library.approve("v0", "test")
    library.close()


def results(learner: Path) -> dict[tuple, tuple]:
    """Return the kept results of trials: who, where, task and scene -> what came of it."""
    path = learner / GATE / "trials.sqlite"
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as file:
        try:
            rows = file.execute("SELECT * FROM trials").fetchall()
        except sqlite3.OperationalError:  # killed before it had made its table
            return {}
    return {row[:4]: row[4:] for row in rows}


def verdicts(learner: Path) -> list[dict[str, Any]]:
    """Return the kept verdicts, without what they say of their own run."""
    kept = [json.loads(path.read_text()) for path in sorted((learner / GATE / "verdicts").glob("*.json"))]
    return [told | {"report": {k: v for k, v in told["report"].items() if k not in OWN}} for told in kept]


class GateKiller:
    """Kills the gate, or a worker of it, while it judges the candidate of ``learner``."""

    def __init__(self, config: GateKillsBenchmark, account: Account) -> None:
        self.config, self.account = config, account
        self.rng = np.random.default_rng(config.seed)
        made = config.work / "made"
        make_learner(made)
        self.made = made
        reference = config.work / "reference"
        shutil.copytree(made, reference)
        began = time.monotonic()
        process = self._start(reference)
        if process.wait(LONGEST_S) != 1:  # so few pairs show nothing
            raise EngramError(f"the validation that nobody killed ended with code {process.returncode}")
        self.took_s = time.monotonic() - began
        self.verdicts, self.results = verdicts(reference), results(reference)

    def _start(self, learner: Path) -> subprocess.Popen:
        words = ["validate", "candidate", "--learner", str(learner), "--tasks", "reach"]
        words += ["--budget", str(self.config.budget), "--workers", str(self.config.workers)]
        with (self.config.work / "gate.log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "engram.app.cli", *words], stdout=log, stderr=log)

    def run(self) -> None:
        """Kill as often as is wanted, the gate and its workers in turn."""
        kills, number = self.account.kills, 0
        while min(kills["gate"], kills["worker"]) < self.config.count:
            learner = self.config.work / "learner"
            shutil.rmtree(learner, ignore_errors=True)
            shutil.copytree(self.made, learner)
            decided = False
            while not decided:
                who = "gate" if kills["gate"] <= kills["worker"] else "worker"
                decided = not self._kill(who, learner)
                self._check(learner, number := number + 1, decided)
            self.account.verdicts += 1

    def _kill(self, who: str, learner: Path) -> bool:
        """Start the gate and kill at a random instant; tell whether it had not decided before."""
        process = self._start(learner)
        try:
            process.wait(float(self.rng.uniform(0.0, self.took_s)))
            return False
        except subprocess.TimeoutExpired:
            pass
        try:
            children = psutil.Process(process.pid).children()
            workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        except psutil.NoSuchProcess:  # something ended by itself at this moment
            workers = []
        if who == "worker" and not workers:
            who = "gate"  # there is none yet
        killed = process.pid if who == "gate" else workers[int(self.rng.integers(len(workers)))].pid
        os.kill(killed, signal.SIGKILL)
        self.account.kills[who] += 1
        print(f"killed: {self.account.kills}", file=sys.stderr, flush=True)
        code = process.wait(LONGEST_S)
        if who == "gate":
            _, left = psutil.wait_procs(workers, ORPHANS_S)
            self.account.orphans += bool(left)
        return code != 1  # a worker may die after the last episode

    def _check(self, learner: Path, number: int, decided: bool) -> None:
        kept, told, wrong = results(learner), verdicts(learner), self.account.wrong
        differ = [key for key, value in kept.items() if self.results.get(key) != value]
        if differ:
            wrong.append(f"start {number}: {len(differ)} results differ, such as {differ[0]}")
        if told not in ([], self.verdicts):
            wrong.append(f"start {number}: another verdict")
        if decided and told != self.verdicts:
            wrong.append(f"start {number}: the verdict is lost")
        if decided and kept.keys() != self.results.keys():
            wrong.append(f"start {number}: {len(kept)} results, without a kill {len(self.results)}")


def library_state(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return what is deployed, and the stage of every version whose weights are kept, and whole."""
    library = WeightsLibrary(folder, read_only=True)
    return library.deployed, {version: library.get(version)[1].stage for version in library.kept}


def kill_library(config: GateKillsBenchmark, account: Account) -> None:
    """Kill a process that changes a library of weights, again and again."""
    rng = np.random.default_rng(config.seed + 1)
    states: list[tuple[list[str], dict[str, str]]] = []
    reference = WeightsLibrary(config.work / "library-reference")
    wanted = changes(reference)
    for number in range(config.count):
        folder = config.work / "library"
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "engram.benchmarks.gate_kills_writer", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(rng.uniform(0.0, 1.0)))
            process.send_signal(signal.SIGKILL)
            durable = int((process.stdout.read().split() or [b"0"])[-1])
        account.kills["library"] += 1
        while len(states) < durable + 2:
            states.append(library_state(config.work / "library-reference"))
            next(wanted)
        if library_state(folder) not in states[durable : durable + 2]:
            account.wrong.append(f"library {number}: after {durable} changes it is {library_state(folder)}")
        opened = WeightsLibrary(folder)  # it forgets its candidates, and only these
        if opened.current and opened.stage(opened.current) not in ("approved", "canary"):
            account.wrong.append(f"library {number}: {opened.current} drives, {opened.stage(opened.current)}")
        opened.close()
    reference.close()


def figures(account: Account) -> list[dict[str, Any]]:
    """Return the rows of the report."""
    n, wrong = sum(account.kills.values()), len(account.wrong)
    rate = wilson(wrong, n)
    return [
        figure("gate_kills_wrong", wrong, n, (n * rate.low, n * rate.high), "== 0", wrong == 0),
        figure("gate_kills_verdicts", account.verdicts, account.verdicts),
        figure("gate_kills_orphans", account.orphans, account.kills["gate"], target="== 0", met=not account.orphans),
        *[figure(f"gate_kills_of_the_{who}", count, count) for who, count in account.kills.items()],
    ]


def main(config: GateKillsBenchmark | None = None) -> None:
    """Kill, compare, print, save."""
    config = config or tyro.cli(GateKillsBenchmark)
    where, account = machine(), Account()
    own = replace(config, work=config.work / "killed")
    shutil.rmtree(own.work, ignore_errors=True)
    own.work.mkdir(parents=True)
    kill_library(own, account)
    GateKiller(own, account).run()
    rows = figures(account)
    table = Table("figure", "value", "n", "target", title="kill -9 of gate, workers and library")
    for row in rows:
        table.add_row(row["name"], str(row["value"]), str(row["n"]), row["target"] or "")
    Console(stderr=True).print(table)
    for line in account.wrong:
        print(line, file=sys.stderr)
    save_report(config.output, "gate_kills", where, config, figures=rows, wrong=account.wrong)


if __name__ == "__main__":
    main()
