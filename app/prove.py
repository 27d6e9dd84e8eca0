"""``engram prove <part>``: the figures of one part, measured again from fixed seeds.

A table shows which targets are missed and met; then comes a line of JSON for every figure: name, value, interval, n,
target, met. Measurements are the libraries' own; this module only runs them and judges by the targets written down
here. ``--quick`` is the same measurement with fewer episodes, scenes and rounds, and so with wider intervals.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engram.app.commands import require_benchmarks
from engram.app.options import refuse, writable
from engram.core.errors import EngramError, InvalidInputError, UnknownNameError, unknown_name
from engram.core.paths import at_home
from engram.core.provenance import digest
from engram.core.statistics import Rate, mean_rate, wilson

EXPERT_TARGET, POLICY_TARGET, PERCEPTION_TARGET, CONTEXT_TARGET = 0.95, 0.80, 0.95, 0.95
CENTRE_TARGET_MM = 10.0
SWAP_TARGETS = {"unswapped": None, "swapped_goal": POLICY_TARGET, "original_goal": None}
"""Success with the usual instruction, with the swapped instruction at the swapped goal, and with the swapped
instruction at the original goal."""


@dataclass(frozen=True)
class ProveConfig:
    """Measure the figures of one part again, from their seeds."""

    part: tyro.conf.Positional[str] = "loop"
    """Which part: loop, memory, policy, faults, learner, gate, promise."""
    quick: bool = False
    """A smaller run: about ten minutes on two cores, for the parts policy, learner and gate about an hour."""
    policy: str = ""
    """Checkpoint that is proved, for the parts loop and policy; empty: base for the loop, engram for the policy."""
    others: tuple[str, ...] = ()
    """For the part policy: baselines to run on the same seeds, as name=folder; the memoryless one is called none.
    Empty: those of benchmarks/memory_arms.py, which are recorded and trained first (hours); with ``quick`` none."""
    output: Path | None = None
    """File for all figures as one JSON list."""
    work: Path | None = None
    """Folder for finished measurements, homes and episodes. An interrupted run continues from it. What other code or
    settings produced is measured again, except trained policies."""


@dataclass(frozen=True)
class Figure:
    """One measured number and what it is judged by."""

    name: str
    value: float | None
    interval: tuple[float, float] | None  # 95 %
    n: int
    target: str  # ">= 0.95"; empty = none
    met: bool | None


class ProofError(EngramError):
    """A measurement did not finish."""


def rate_figure(name: str, rate: Rate, at_least: float | None) -> Figure:
    """Judge a rate by its point value."""
    target = f">= {at_least}" if at_least is not None else ""
    met = rate.rate >= at_least if at_least is not None else None
    return Figure(name, round(rate.rate, 4), (round(rate.low, 4), round(rate.high, 4)), rate.n, target, met)


def last_json(text: str) -> Any:
    """Return the last line of ``text`` that is JSON; raises ProofError when there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith(("{", "[")):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue
    raise ProofError("no line of JSON in the output")


def run(words: list[str]) -> Any:
    """Run one measurement in a process of its own, show its output, return its last line of JSON."""
    command = [sys.executable, *words]
    print("+", " ".join(words), file=sys.stderr, flush=True)
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            print("  " + line, end="", file=sys.stderr, flush=True)
    print(f"  took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if process.returncode:
        raise ProofError(f"{' '.join(words)}: exit code {process.returncode}")
    return last_json("".join(lines))


def prove_experts(config: ProveConfig) -> list[Figure]:
    """Scripted experts: success over randomised poses, each task at least 95 %."""
    episodes = 20 if config.quick else 200
    report = run(["-m", "engram.app.cli", "eval", "experts", "--episodes", str(episodes)])
    return [rate_figure(f"expert_{t}", Rate(**r), EXPERT_TARGET) for t, r in report["per_task"].items()]


def prove_policy(config: ProveConfig) -> list[Figure]:
    """The shipped policy from camera images: success per task, and the mean that has the target."""
    episodes = 10 if config.quick else 100
    report = run(["-m", "engram.app.cli", "eval", config.policy or "base", "--episodes", str(episodes)])
    figures = [rate_figure(f"policy_{t}", Rate(**r), None) for t, r in report["per_task"].items()]
    return [*figures, rate_figure("policy_mean", Rate(**report["mean"]), POLICY_TARGET)]


def prove_demo(config: ProveConfig) -> list[Figure]:
    """The demo over DDS: every episode must come to an outcome, without restarts."""
    episodes = 6 if config.quick else 60
    with tempfile.TemporaryDirectory() as folder:
        words = ["--headless", "--episodes", str(episodes), "--policy", config.policy or "base", "--log-dir", folder]
        told = run(["-m", "engram.app.cli", "demo", *words, "--domain", "97", "--no-learner"])
    ran = wilson(sum(told["outcomes"].values()), episodes)
    latency = Figure("demo_camera_to_command_p99_ms", told["latency_p99_ms"], None, told["latency_steps"], "", None)
    return [
        rate_figure("demo_episodes_with_outcome", ran, 1.0),
        rate_figure("demo_success", wilson(told["successes"], max(1, told["episodes"])), None),
        latency,
        Figure("demo_restarts", told["restarts"], None, episodes, "== 0", told["restarts"] == 0),
    ]


def prove_benchmarks(config: ProveConfig) -> list[Figure]:
    """Latency beside a raw round trip, speed of the simulation, scores of perception."""
    quick = ["--quick"] if config.quick else []
    figures = []
    for part in ("loop", "sim"):
        policy = ["--policy", config.policy or "base"] if part == "loop" else []
        figures += [
            _benchmark_figure(row) for row in run(["-m", f"engram.benchmarks.{part}", *quick, *policy])["figures"]
        ]
    return figures + prove_perception(config)


def prove_perception(config: ProveConfig) -> list[Figure]:
    """Recall, precision and centre error of the geometric detector on random tables."""
    rows = run(["-m", "engram.benchmarks.perception", "--scenes", "40" if config.quick else "200"])["rows"]
    figures = []
    for name, row in rows.items():
        label = "perception_" + name.replace(" ", "_")
        ours = name.startswith("engram")
        for score in ("recall", "precision"):
            value = row[score]
            met = value["value"] >= PERCEPTION_TARGET if ours else None
            target = f">= {PERCEPTION_TARGET}" if ours else ""
            interval = tuple(value["interval"]) if value.get("interval") else None
            figures.append(Figure(f"{label}_{score}", value["value"], interval, value["n"], target, met))
        error = row["centre_error_mm"]
        met = error["p50"] <= CENTRE_TARGET_MM if ours else None
        target = f"<= {CENTRE_TARGET_MM:g}" if ours else ""
        figures.append(Figure(f"{label}_centre_error_p50_mm", error["p50"], None, row["recall"]["n"], target, met))
    return figures


def prove_fetch(config: ProveConfig) -> list[Figure]:
    """Fetching in a home: success and exploration with and without memory, and what advice to look saves; and how
    little the best possible memory explores."""
    return [*_benchmark_figures("fetch", config), *_benchmark_figures("fetch_limit", config)]


KILLS, DAMAGES = 300, 200
"""kill -9 during writing, and bit flips or truncations of the store."""
_PIECE, _FIRST_SEED = 50, 20
"""So many of them are one run of the test, on a store and with a seed of its own."""


def prove_store(config: ProveConfig) -> list[Figure]:
    """kill -9 at random instants of writing, and damaged files: nothing acknowledged lost, nothing silently wrong."""
    tests = Path(__file__).resolve().parents[1] / "tests" / "memory" / "test_store.py"
    if not tests.exists():
        raise ProofError(f"{tests}: not there; the store is proved from a checkout")
    kills, damages = (30, 40) if config.quick else (KILLS, DAMAGES)
    figures = []
    for name, n, chosen in (("kill_9_losses", kills, "kill_9"), ("silent_damages", damages, "flipped")):
        pieces = [(_FIRST_SEED + i, min(_PIECE, n - i * _PIECE)) for i in range(-(-n // _PIECE))]
        held = [_store_holds(config, tests, chosen, seed, count) for seed, count in pieces]
        figures.append(Figure(f"store_{name}", 0 if all(held) else None, None, n, "== 0", all(held)))
    return figures


def _store_holds(config: ProveConfig, tests: Path, chosen: str, seed: int, count: int) -> bool:
    """Run one piece of a test of the store, unless it passed with this code before."""
    code = digest("core/**/*.py", "memory/**/*.py", "tests/memory/*.py")
    passed = config.work / f"store_{chosen}_{count}_seed_{seed}_code_{code}" if config.work else None
    if passed is not None and passed.exists():
        return True
    environment = {"ENGRAM_KILLS": str(count), "ENGRAM_DAMAGES": str(count), "ENGRAM_SEED": str(seed)}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3600", str(tests), "-k", chosen]
    command, here = [sys.executable, *words], tests.parents[2]
    if subprocess.call(command, cwd=here, env={**os.environ, **environment}, stdout=sys.stderr):
        return False
    if passed is not None:
        passed.touch()
    return True


def prove_growth(config: ProveConfig) -> list[Figure]:
    """Update, queries, commit and load from a thousand to a million entries, beside the bare operations."""
    quick = ["--quick"] if config.quick else []
    return [_benchmark_figure(row) for row in run(["-m", "engram.benchmarks.memory", *quick])["figures"]]


def prove_memory_tasks(config: ProveConfig) -> list[Figure]:
    """The policy with a sequence memory on tasks that need memory and on those that do not, with and without
    ablations."""
    words = ["--policy", config.policy or "engram", *(["--quick"] if config.quick else [])]
    words += ["--work", str(config.work)] if config.work else []
    others = config.others or (() if config.quick else _trained_arms(config))
    words += ["--others", *others] if others else []
    return [_benchmark_figure(row) for row in run(["-m", "engram.benchmarks.memory_tasks", *words])["figures"]]


def _trained_arms(config: ProveConfig) -> tuple[str, ...]:
    words = ["--work", str(config.work / "arms")] if config.work else []
    return tuple(f"{arm}={policy}" for arm, policy in run(["-m", "engram.benchmarks.memory_arms", *words]).items())


def prove_policy_claims(config: ProveConfig) -> list[Figure]:
    """The policy on every task, pushed, with each memory spoiled, and under conditions that training never had."""
    return _benchmark_figures("policy_claims", config, "--policy", config.policy or "engram")


def prove_light(config: ProveConfig) -> list[Figure]:
    """The shipped policies in other light, or one of your own."""
    return _benchmark_figures("light", config, *(["--policies", config.policy] if config.policy else []), keeps=False)


def prove_policy_peers(config: ProveConfig) -> list[Figure]:
    """LeRobot's policies, trained on the demonstrations of the shipped policy for as long, beside it."""
    part, work = (["--share", "0.01"] if config.quick else []), config.work or Path("runs")
    words = ["--record-only", "--work", str(work / "engram"), *part]
    dataset = run(["-m", "engram.benchmarks.train_engram", *words])["dataset"]
    ours = config.policy or "engram"
    return _benchmark_figures("policy_peers", config, "--dataset", dataset, "--ours", ours)


def prove_through_nodes(config: ProveConfig) -> list[Figure]:
    """The same episodes in process and through the nodes, in lock-step and in real time."""
    return _benchmark_figures("through_nodes", config, "--policy", config.policy or "engram")


def prove_swap(config: ProveConfig) -> list[Figure]:
    """The policy with a sequence memory, with swapped instructions: which goal it reaches."""
    episodes = 3 if config.quick else 50
    report = run(["-m", "engram.app.cli", "eval", config.policy or "engram", "--swap", "--episodes", str(episodes)])
    means = {goal: mean_rate([Rate(**rate) for rate in report[goal].values()]) for goal in SWAP_TARGETS}
    return [rate_figure(f"swap_{goal}", rate, SWAP_TARGETS[goal]) for goal, rate in means.items()]


def prove_context(config: ProveConfig) -> list[Figure]:
    """The policy that acts on the scene graph, with both cameras covered: with and without memory/context."""
    figures = []
    for name, ablation, target in (("given", "", CONTEXT_TARGET), ("not_given", "no_context", None)):
        words = [config.policy or "engram", "--tasks", "unseen", "--episodes", "10" if config.quick else "100"]
        report = run(["-m", "engram.app.cli", "eval", *words, *(["--ablation", ablation] if ablation else [])])
        figures.append(rate_figure(f"unseen_context_{name}", Rate(**report["mean"]), target))
    return figures


def prove_critics(config: ProveConfig) -> list[Figure]:
    """A policy that practises on a twin with critics, which learn from failures, too."""
    return _practices("critics", config)


def prove_corrections(config: ProveConfig) -> list[Figure]:
    """A policy that searches for corrections of its motions, on the twins of the search's design and on others."""
    return [figure for name in ("corrections", "shifts", "gaps") for figure in _practices(name, config)]


def prove_helped(config: ProveConfig) -> list[Figure]:
    """A policy that practises with an expert's help."""
    return _practices("helped", config)


def prove_replay_practice(config: ProveConfig) -> list[Figure]:
    """A policy that practises on twins by replays of demonstrations from the simulation."""
    return _practices("replay_practice", config)


def prove_gate_overhead(config: ProveConfig) -> list[Figure]:
    """What a gate that validates beside the loop costs it."""
    figures = _benchmark_figures("loop", config, keeps=False)
    return [figure for figure in figures if figure.name.startswith("loop_beside_the_gate")]


PRACTICES = {
    "critics": ("--arms", "edit actor", "--cells", "pick_place on turned", "--seeds", "2", "--measure-at", "0", "100"),
    "corrections": ("--arms", "corrections", "--seeds", "2", "--first", "1"),
    "shifts": (
        *("--arms", "corrections", "--cells", "pick_place on front_moved", "stack on mounted"),
        *("--seeds", "3", "--first", "1"),
    ),
    "gaps": (
        *("--arms", "corrections", "--cells", "pick_place on turned_scaled", "stack on turned_scaled"),
        *("press_button on worn", "pick_place on wrist_moved", "--seeds", "1", "--first", "2"),
    ),
    "helped": ("--arms", "noisy cloning", "helped cloning", "--cells", "stack on late", "--seeds", "1"),
    "replay_practice": (
        *("--arms", "replays", "--cells", "pick_place on turned", "pick_place on turned_scaled", "stack on late"),
        *("stack on turned_scaled", "--seeds", "1", "--measure-at", "0", "50", "100"),
    ),
}
"""Result file -> how benchmarks/improvement.py makes it."""


def _practices(name: str, config: ProveConfig) -> list[Figure]:
    output = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / f"{name}.json"
    figures = _benchmark_figures("improvement", config, *PRACTICES[name], "--output", str(output))
    return [replace(figure, name=f"{name}_{figure.name.removeprefix('improvement_')}") for figure in figures]


def _benchmark(name: str, keeps: bool) -> Callable[[ProveConfig], list[Figure]]:
    def measure(config: ProveConfig) -> list[Figure]:
        return _benchmark_figures(name, config, keeps=keeps)

    measure.__name__ = f"prove_{name}"
    return measure


def _benchmarks(*names: str, keeps: bool = True) -> list[Callable[[ProveConfig], list[Figure]]]:
    """Return the measurements of ``benchmarks/<name>.py``; each of these files says what it measures."""
    return [_benchmark(name, keeps) for name in names]


def _benchmark_figures(benchmark: str, config: ProveConfig, *more: str, keeps: bool = True) -> list[Figure]:
    """Run a benchmark with the words ``more``; ``keeps``: whether it keeps what is finished in a folder."""
    words = [*more, *(["--quick"] if config.quick else [])]
    words += ["--work", str(config.work)] if config.work and keeps else []
    return [_benchmark_figure(row) for row in run(["-m", f"engram.benchmarks.{benchmark}", *words])["figures"]]


def _benchmark_figure(row: dict[str, Any]) -> Figure:
    interval = tuple(row["interval"]) if row.get("interval") else None
    target = row.get("target")
    words = "" if target is None else str(target)  # which side is better, the benchmark's own "met" says
    return Figure(row["name"], row["value"], interval, int(row.get("n") or 0), words, row.get("met"))


PARTS: dict[str, tuple[Callable[[ProveConfig], list[Figure]], ...]] = {
    "loop": (prove_demo, prove_experts, prove_policy, prove_benchmarks),
    "memory": (*_benchmarks("household"), prove_fetch, prove_store, *_benchmarks("memory_weeks"), prove_growth),
    "policy": (
        *(prove_policy_claims, prove_memory_tasks, prove_swap, prove_context, prove_through_nodes),
        *(prove_light, prove_policy_peers),
    ),
    "faults": (*_benchmarks("faults"),),
    "learner": (
        *_benchmarks("verdicts", "classifier", "twin", "improvement"),
        *(prove_critics, prove_corrections, prove_helped, prove_replay_practice),
        *_benchmarks("memory_practice", "new_task", "replays", "continual", "robot_corrections"),
        *_benchmarks("learning_demo", "learner", keeps=False),
    ),
    "gate": (
        *_benchmarks("gate", "gate_peers", keeps=False),
        *_benchmarks("gate_policies", "identification", "worst_case", "gate_kills"),
        prove_gate_overhead,
    ),
    "promise": (*_benchmarks("promise"),),
}
"""Part -> its measurements."""
OF_POLICY = {"loop": ("policy",), "policy": ("policy", "others")}
"""Part -> what it takes of the options that name policies; the other parts measure what is shipped."""


_ROOMS = [
    "app",
    "benchmarks",
    "core",
    "learning",
    "memory",
    "nodes",
    "perception",
    "policies",
    "runtime",
    "sim",
    "validation",
]
CODE = (*(f"{room}/**/*.py" for room in _ROOMS), "memory/*.json", "policies/checkpoints/**/*")
"""What a finished measurement depends on."""


def _acts(policy: str) -> str:
    """Return the fingerprint of ``policy``, a folder or name=folder; "" for what is none: a measurement says so."""
    folder = at_home(policy.partition("=")[2] or policy)
    if not folder.is_dir():
        return ""
    from engram.policies.checkpoint import fingerprint  # torch: only where it is needed

    return fingerprint(folder)


def kept(measure: Callable[[ProveConfig], list[Figure]], config: ProveConfig) -> list[Figure]:
    """Return what ``measure`` finds; with a folder, what it found there before with the same code and settings."""
    if config.work is None:
        return measure(config)
    compared = [(policy, _acts(policy)) for policy in (config.policy, *config.others) if policy]
    policies = hashlib.sha256(repr(compared).encode()).hexdigest()[:8] if compared else "default"
    settings = "_".join([measure.__name__, policies, *(["quick"] if config.quick else [])])
    path = config.work / f"{settings}_code_{digest(*CODE)}.json"
    if path.exists():
        print(f"{measure.__name__}: finished before, {path}", file=sys.stderr, flush=True)
        return [Figure(**row) for row in json.loads(path.read_text())]
    figures = measure(config)
    path.write_text(json.dumps([asdict(figure) for figure in figures]))
    return figures


def _check_policies(config: ProveConfig) -> None:
    """Raise for what would only come out after hours of measurements: a policy or one of ``others`` that is none."""
    from engram.runtime.factories import check_policy_name, policy_folder

    for other in config.others:
        name, _, place = other.partition("=")
        if not name or not place:
            raise InvalidInputError(f"ProveConfig.others: {other!r}, expected name=folder")
        policy_folder(place)
    if not config.policy:
        return
    check_policy_name(config.policy)
    if ":" in config.policy and config.part == "loop":
        return
    from engram.policies.source import Source

    try:
        folder = policy_folder(config.policy)
    except UnknownNameError:
        if config.part == "policy":  # what it is compared with lies in folders, too
            raise
        Source(config.policy).type()  # on the hub
        return
    Source(str(folder)).type()
    settings = json.loads((folder / "config.json").read_text())
    if config.part == "policy" and settings.get("memory", "none") == "none":
        raise InvalidInputError(f"ProveConfig.policy: {config.policy!r} has no memory of its episode to prove")


def judged(figures: Sequence[Figure]) -> Table:
    """Return the figures that have a target as one table, those that miss it first."""
    rows = sorted((f for f in figures if f.met is not None), key=lambda f: bool(f.met))
    met = sum(bool(f.met) for f in rows)
    table = Table("figure", "value", "95 % interval", "n", "target", "met", title=f"{met} of {len(rows)} targets met")
    for f in rows:
        interval = "" if f.interval is None else f"[{f.interval[0]:g}, {f.interval[1]:g}]"
        value = "" if f.value is None else f"{f.value:g}"
        table.add_row(f.name, value, interval, str(f.n), escape(f.target), "yes" if f.met else "NO")
    return table


def prove(config: ProveConfig) -> int:
    """Run every measurement of the part; 1 when one failed or a target was not met."""
    if config.part not in PARTS:
        raise unknown_name("part to prove", config.part, PARTS)
    taken = OF_POLICY.get(config.part, ())
    left_out = [name for name in ("policy", "others") if name not in taken]
    refuse(config, left_out, f": part {config.part} takes {', '.join(taken) or 'neither policy nor others'}")
    _check_policies(config)
    require_benchmarks()
    output = writable("ProveConfig.output", config.output)
    figures: list[Figure] = []
    broken: list[str] = []
    if config.work is not None:
        config.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # several measurements of the memory need one fitted sensor; those of the policy have a folder of their own
        once = replace(config, work=Path(scratch)) if config.part == "memory" and config.work is None else config
        for measure in PARTS[config.part]:
            try:
                figures += kept(measure, once)
            except ProofError as error:
                broken.append(str(error))
                print(f"engram prove: {error}", file=sys.stderr, flush=True)
    Console(stderr=True, width=150).print(judged(figures))
    for figure in figures:
        print(json.dumps(asdict(figure)))
    if output is not None:
        output.write_text(json.dumps([asdict(f) for f in figures], indent=1) + "\n")
    return int(bool(broken) or any(f.met is False for f in figures))
