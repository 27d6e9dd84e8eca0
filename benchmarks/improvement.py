"""How much better a policy gets by practising under a gap, and which rule makes it so.

    python -m engram.benchmarks.improvement [--quick]

A cell is a twin (``engram.sim.gaps``) with a task. Every arm practises each cell from the same scenes, with several
seeds; the memory judges, and nothing learns from the simulator's truth. Success is measured without noise on scenes
that nobody practised on. A figure is the interquartile mean over seeds (Agarwal et al. 2021, arXiv:2108.13264); its
interval is a bootstrap that draws seeds, and for each drawn seed its episodes. Practices are kept in ``work`` and gone
on with. Prints a table; the last line is JSON, which also goes to benchmarks/results/improvement.json.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from scipy.stats import trim_mean

from engram.app.improve import ImproveConfig, practise
from engram.benchmarks.replays import shown_by_experts
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.errors import unknown_name
from engram.core.provenance import machine

CELLS = {
    "pick_place on turned": ("turned", "pick_place", 200),
    "stack on late": ("late", "stack", 100),
    "pick_place on front_moved": ("front_moved", "pick_place", 100),
    "stack on mounted": ("mounted", "stack", 100),
    "pick_place on turned_scaled": ("turned_scaled", "pick_place", 100),
    "stack on turned_scaled": ("turned_scaled", "stack", 100),
    "press_button on worn": ("worn", "press_button", 100),
    "pick_place on wrist_moved": ("wrist_moved", "pick_place", 100),
}
"""Cell -> twin, task, and episodes of the arms of ``LONG``; the others practise 100."""
USUAL = tuple(CELLS)[:2]
"""Those of all arms."""
CRITICS = {"exploration": 0.07, "hold": 0, "search": 0}
"""Critics see most in noise that lasts for a whole episode; there a little is enough."""
ARMS: dict[str, dict[str, Any]] = {
    "cloning": {"exploration": 0.0, "search": 0},
    "noisy cloning": {"exploration": 0.1, "search": 0},
    "corrections": {"search": 50},
    "helped cloning": {"exploration": 0.1, "search": 0, "oracle_help": 0.1},
    "replays": {"search": 0},
    "advantage cloning": {"algorithm": "advantage_cloning", **CRITICS},
    "edit actor": {"algorithm": "edit_actor", **CRITICS},
    "best of n": {"algorithm": "best_of_n", **CRITICS},
    "noise steering": {"algorithm": "noise_steering", **CRITICS},
    "soft actor critic": {"algorithm": "soft_actor_critic", **CRITICS},
}
"""Arm -> settings of ``engram improve``."""
SHOWN = {"replays": 10}
"""Arm -> demonstrations that it replays; scripted experts give them in the simulation without a gap."""
LONG = ("noisy cloning", "corrections")
BEST = "corrections"
"""The best of the arms that nobody helps: it has to meet the target."""
DRAWS = 10_000
TARGET, AT = 0.8, 100
"""Success that the best arm should reach, and after how many episodes."""


@dataclass(frozen=True)
class ImprovementBenchmark:
    """What is measured."""

    quick: bool = False
    """One seed of 20 episodes in the first cell, measured on 10."""
    arms: tuple[str, ...] = ("cloning", "noisy cloning", "corrections")
    """Which ones: cloning; noisy cloning; corrections of all motions, searched for in 50 episodes each;
    helped cloning, where an expert takes over in a tenth of the steps; replays of demonstrations from the simulation;
    with critics: advantage cloning, edit actor, best of n, noise steering, soft actor critic."""
    cells: tuple[str, ...] = USUAL
    """Which ones."""
    seeds: int = 3
    """Practices of every arm in every cell."""
    first: int = 0
    """The first seed."""
    episodes: int = 0
    """Episodes of each practice; 0: as the cells say."""
    measure_at: tuple[int, ...] = (0, 50, 100, 200, 300)
    """After so many episodes of a practice its success is measured, and at its end."""
    measured: int = 100
    """Episodes of each measurement."""
    policy: str = "base"
    """Where learning begins."""
    work: Path = Path("runs/improve")
    """Folder of the practices."""
    output: Path = RESULTS / "improvement.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for field, known in (("arms", ARMS), ("cells", CELLS)):
            for name in getattr(self, field):
                if name not in known:
                    raise unknown_name(f"ImprovementBenchmark.{field}", name, known)


def runs(config: ImprovementBenchmark) -> list[dict[str, Any]]:
    """Return the report of every practice."""
    found = []
    for seed in range(config.first, config.first + (1 if config.quick else config.seeds)):
        for cell in config.cells[:1] if config.quick else config.cells:
            on, task, longest = CELLS[cell]
            for arm in config.arms:
                episodes = config.episodes or (longest if arm in LONG else min(longest, AT))
                wanted = ImproveConfig(
                    task=task,
                    on=on,
                    policy=config.policy,
                    episodes=20 if config.quick else episodes,
                    measure_at=(0, 10) if config.quick else config.measure_at,
                    measured=10 if config.quick else config.measured,
                    seed=seed,
                    work=config.work,
                    demonstrations=str(shown_by_experts(config.work, task, SHOWN[arm])) if arm in SHOWN else "",
                    **ARMS[arm],
                )
                report = practise(wanted)
                found.append({"cell": cell, "arm": arm, "seed": seed} | _told(report))
    return found


def _told(report: dict[str, Any]) -> dict[str, Any]:
    """Return the curve, and how often the learner was told what is not true."""
    episodes = report["episodes"]
    false = sum(e["success"] and not e["oracle_success"] for e in episodes)
    return {
        "curve": [[row["episodes"], row["success"]["successes"], row["success"]["n"]] for row in report["curve"]],
        "episodes": len(episodes),
        "told_successes": sum(e["success"] for e in episodes),
        "false_successes": false,
        "steps": sum(e["steps"] for e in episodes),
        "helped_steps": sum(e["helped"] for e in episodes),
    }


def iqm(rates: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of ``rates`` (..., seeds)."""
    return np.asarray(trim_mean(rates, 0.25, axis=-1))


def bootstrap(successes: np.ndarray, n: np.ndarray, draws: int = DRAWS) -> tuple[float, float]:
    """Return the 95 % interval of the interquartile mean of ``successes`` of ``n`` (seeds,)."""
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(n), size=(draws, len(n)))
    rates = rng.binomial(n[chosen], (successes / n)[chosen]) / n[chosen]
    low, high = np.percentile(iqm(rates), (2.5, 97.5))
    return float(low), float(high)


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the success of each arm in each cell after each number of episodes, and how true the verdicts were."""
    rows = []
    for cell in dict.fromkeys(run["cell"] for run in found):
        for arm in ARMS:
            curves = [
                dict((at, (s, n)) for at, s, n in r["curve"]) for r in found if (r["cell"], r["arm"]) == (cell, arm)
            ]
            for at in sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []:
                successes, n = np.array([curve[at] for curve in curves]).T
                value = float(iqm(successes / n))
                judged = arm == BEST and at == AT
                rows.append(
                    figure(
                        f"improvement_{cell}_{arm}_after_{at}".replace(" ", "_"),
                        value,
                        int(n.sum()),
                        bootstrap(successes, n),
                        f">= {TARGET}" if judged else None,
                        value >= TARGET if judged else None,
                        seeds=len(curves),
                    )
                )
    told = sum(run["told_successes"] for run in found)
    wrong = sum(run["false_successes"] for run in found)
    rows.append(figure("improvement_false_successes_learnt_from", wrong / max(1, told), told))
    helped = [run for run in found if ARMS[run["arm"]].get("oracle_help")]
    if helped:
        steps = sum(run["steps"] for run in helped)
        rows.append(figure("improvement_helped_steps", sum(run["helped_steps"] for run in helped) / steps, steps))
    return rows


def main(config: ImprovementBenchmark | None = None) -> None:
    """Practise, measure, print, save."""
    config = config or tyro.cli(ImprovementBenchmark)
    where = machine()
    found = runs(config)
    rows = figures(found)
    table = Table("figure", "success", "95 % interval", "n", title="Practice")
    for row in rows:
        ends = row["interval"]
        table.add_row(
            row["name"], f"{row['value']:.3f}", f"{ends[0]:.3f}..{ends[1]:.3f}" if ends else "", str(row["n"])
        )
    Console(stderr=True).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "improvement", where, told, figures=rows, runs=found)


if __name__ == "__main__":
    main()
