"""LeRobot's own policies on our demonstrations: trained by ``lerobot-train`` for the same core-minutes, evaluated by
our evaluation on the same seeds.

    python -m engram.benchmarks.policy_peers --dataset runs/engram/dataset-... --ours runs/engram/.../policy

Each peer computes on one core for as many minutes as ours took on all its cores together: time in which
another program has the core does not count. An interrupted run goes on from LeRobot's last checkpoint, with the
settings that it began with: others are refused. Evaluations that are finished are not run again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import tyro

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.durable import write_atomic
from engram.core.errors import EngramError, unknown_name
from engram.core.provenance import machine
from engram.core.statistics import Rate, mean_rate
from engram.policies.checkpoint import CARD
from engram.sim.tasks import SUITES

PEERS = ("act", "diffusion")
NO_WEIGHTS = "--policy.pretrained_backbone_weights=null"
SETTINGS = {
    "act": (NO_WEIGHTS,),
    "diffusion": (
        *(NO_WEIGHTS, "--policy.down_dims=[128,256,512]"),
        *("--policy.noise_scheduler_type=DDIM", "--policy.num_inference_steps=10"),
    ),
}
"""Of each peer, beside LeRobot's own. No network has seen other images than the dataset's. Diffusion Policy has a
quarter of its channels, with which a core makes five times as many steps; it acts after ten DDIM steps, as on the robot
of its paper (Chi et al. 2023): a hundred take minutes an episode here."""
SAVE_STEPS = 100
"""LeRobot saves so often; what it did after the last time does not count."""
POLL_S = 5.0
MINUTES = "computed minutes"
"""Entry of the file beside a training; one that counted otherwise has none."""


@dataclass(frozen=True)
class PeersBenchmark:
    """What is trained and evaluated."""

    dataset: Path
    """Folder of the LeRobotDataset that ours learnt from."""
    ours: str = "engram"
    """Our policy: a shipped name or a folder."""
    memoryless: str = ""
    """Folder of ours without memory, trained alike; empty = none."""
    peers: tuple[str, ...] = PEERS
    """LeRobot's policy types."""
    minutes: float = 0.0
    """Core-minutes of each peer's training; 0 = what the card of ours says."""
    batch_size: int = 8
    """Of the peers, as is LeRobot's default."""
    episodes: int = 50
    """Episodes a task, seeds 0 and up."""
    work: Path = Path("runs/policy_peers")
    """Folder of trainings and finished evaluations."""
    quick: bool = False
    """Two minutes of training and two episodes a task."""
    output: Path = RESULTS / "policy_peers.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for peer in self.peers:
            if peer not in PEERS:
                raise unknown_name("peer", peer, PEERS)


def core_minutes(card: dict[str, Any]) -> float:
    """Return the minutes that a policy's trainings took on all their processes together, from its card: the last one,
    and those that the card tells of the policy that it started from."""
    before = core_minutes(card["started_from"]) if "started_from" in card else 0.0
    return float(card["trained_minutes"]) * int(card["processes"]) + before


def train(peer: str, config: PeersBenchmark, minutes: float) -> Path:
    """Train ``peer`` for what is left of ``minutes``; return the folder of its last checkpoint.

    Raises:
        EngramError: it ended by itself, saved nothing in its time, or was begun with other settings.
    """
    out = config.work / peer
    last, settings = out / "checkpoints" / "last" / "pretrained_model", _settings(peer, config)
    spent = _spent(out, settings) if last.exists() else 0.0
    if spent >= minutes:
        return last
    words = ["lerobot-train", "--save_freq", str(2 if config.quick else SAVE_STEPS), "--steps", "10000000"]
    if last.exists():
        words += ["--resume=true", f"--config_path={last / 'train_config.json'}"]
    else:
        words += [*settings, f"--output_dir={out}", "--policy.push_to_hub=false", "--wandb.enable=false"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    config.work.mkdir(parents=True, exist_ok=True)
    _tell(out, settings, spent)
    with (config.work / f"{peer}.log").open("a") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        try:
            _wait(process, spent, minutes, lambda now: _tell(out, settings, now), last)
        finally:
            process.terminate()
            process.wait()
    if not last.exists():
        raise EngramError(f"{peer}: saved nothing in {minutes:g} minutes; see {log.name}")
    return last


def _settings(peer: str, config: PeersBenchmark) -> list[str]:
    """Return the options of lerobot-train that say what ``peer`` becomes; a resumed training keeps its own."""
    return [
        *(f"--policy.type={peer}", "--policy.device=cpu", "--dataset.repo_id=local/peers"),
        *(f"--dataset.root={config.dataset.resolve()}", f"--batch_size={config.batch_size}"),
        *("--num_workers=0", "--seed=0", *SETTINGS[peer]),
    ]


def _tell(out: Path, settings: list[str], minutes: float) -> None:
    """Keep beside the training ``out`` what it was begun with, and what it has computed."""
    write_atomic(out.with_suffix(".json"), json.dumps({MINUTES: minutes, "settings": settings}).encode())


def _spent(out: Path, settings: list[str]) -> float:
    """Return the minutes that the training ``out`` has computed; raises EngramError if its settings were others."""
    file = out.with_suffix(".json")
    told = json.loads(file.read_text()) if file.exists() else {}
    began = told.get("settings", [])
    if MINUTES not in told or began != settings:
        other = [word for word in began if word not in settings] or ["settings that nobody kept"]
        wanted = [word for word in settings if word not in began]
        raise EngramError(
            f"{out}: was begun with {' '.join(other)}, expected {' '.join(wanted) or 'none of these'}; choose another "
            "folder (--work), or remove this training"
        )
    return float(told[MINUTES])


def _wait(
    process: subprocess.Popen[bytes], spent: float, minutes: float, tell: Callable[[float], None], last: Path
) -> None:
    """Let ``process`` compute until ``minutes`` are over, and ``tell`` what it spent until each checkpoint."""
    now, saved = spent, os.path.realpath(last)
    while now < minutes:
        if process.poll() is not None:
            raise EngramError(f"lerobot-train ended with {process.returncode} after {now:.0f} of {minutes:g} minutes")
        now = spent + sum(psutil.Process(process.pid).cpu_times()[:2]) / 60
        if saved != (newest := os.path.realpath(last)) and last.exists():
            tell(now)
            saved = newest
            for older in sorted(Path(saved).parents[1].glob("[0-9]*")):
                if older.name < Path(saved).parent.name:
                    shutil.rmtree(older)
        time.sleep(POLL_S)
    tell(minutes)


def evaluated(name: str, policy: str, tasks: Sequence[str], config: PeersBenchmark) -> dict[str, Rate]:
    """Return the success of ``policy`` in each task, measured unless it was before."""
    folder = config.work / "evaluations"
    folder.mkdir(parents=True, exist_ok=True)
    rates: dict[str, Rate] = {}
    for task in tasks:
        path = folder / f"{name}-{task}-{config.episodes}.json"
        if not path.exists():
            words = ["-m", "engram.app.cli", "eval", policy, "--tasks", task, "--episodes", str(config.episodes)]
            done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise EngramError(f"engram eval {policy} --tasks {task}: exit code {done.returncode}")
            path.write_text(done.stdout.splitlines()[-1])
        rates[task] = Rate(**json.loads(path.read_text())["mean"])
    return rates


def suite_figures(name: str, rates: dict[str, Rate], ours: dict[str, Rate]) -> list[dict[str, Any]]:
    """Return the mean success of ``name`` on the memory tasks and on the others, and what ours has more."""
    rows = []
    for suite, target in (("memory", 0.40), ("tabletop", 0.0)):
        mean = mean_rate([rates[task] for task in SUITES[suite]])
        rows.append(figure(f"{name}_{suite}", mean.rate, mean.n, (mean.low, mean.high)))
        if rates is not ours:
            ahead = mean_rate([ours[task] for task in SUITES[suite]]).rate - mean.rate
            rows.append(figure(f"ours_ahead_of_{name}_{suite}", ahead, mean.n, None, f">= {target:g}", ahead >= target))
    return rows


def main(config: PeersBenchmark | None = None) -> None:
    """Train, evaluate, save."""
    config, where = config or tyro.cli(PeersBenchmark), machine()
    from engram.policies.opening import checkpoint_folder

    card = json.loads((checkpoint_folder(config.ours) / CARD).read_text())
    minutes = config.minutes or core_minutes(card)
    if config.quick:
        config, minutes = replace(config, episodes=2), 2.0
    with ThreadPoolExecutor(len(config.peers)) as threads:
        folders = dict(zip(config.peers, threads.map(lambda p: train(p, config, minutes), config.peers), strict=True))
    policies = {"ours": config.ours, **({"memoryless": config.memoryless} if config.memoryless else {})}
    policies |= {peer: str(folder) for peer, folder in folders.items()}
    tasks = (*SUITES["memory"], *SUITES["tabletop"])
    rates = {name: evaluated(name, policy, tasks, config) for name, policy in policies.items()}
    figures = [row for name, found in rates.items() for row in suite_figures(name, found, rates["ours"])]
    per_task = {name: {task: asdict(rate) for task, rate in found.items()} for name, found in rates.items()}
    save_report(config.output, "policy_peers", where, config, figures=figures, core_minutes=minutes, per_task=per_task)


if __name__ == "__main__":
    main()
