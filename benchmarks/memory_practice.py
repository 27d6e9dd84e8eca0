"""What its memory is worth to a policy that practises: one search, and learners and actors with and without it.

    python -m engram.benchmarks.memory_practice [--quick]

``engram``, which remembers its episode and acts on the scene graph, practises a task on a twin for one search of its
motions' correction. The simulator tells what went well: no relation of the scene graph says it of these tasks. What was
found becomes part of its weights: by the learner as it is; by one from whose experience the tokens of
``memory/context`` are taken away; and by one that reads no memory of the episode. All three learn the same correction
in the same episodes. What the first one learnt is also measured with either memory withheld from the policy that acts.
Success is measured on scenes that nobody practised on. Everything lies in ``work`` and is gone on with. Prints a table;
the last line is JSON, which also goes to benchmarks/results/memory_practice.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from engram.app.improve import FIRST_TEST_SEED, ImproveConfig, folder_of, practise
from engram.benchmarks.report import RESULTS, figure, save_report, slug
from engram.core.durable import write_atomic
from engram.core.errors import unknown_name
from engram.core.motion_correction import MotionCorrection
from engram.core.provenance import machine
from engram.core.statistics import Rate, wilson
from engram.core.types import Transition
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.episode_cloning import EpisodeCloning
from engram.learning.experience.reader import EpisodeInfo, ExperienceReader
from engram.learning.learner import Learner
from engram.learning.learner_config import LearnerConfig
from engram.learning.replay.buffer import Windows
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.loading import load_policy
from engram.policies.vla.chunking import follow
from engram.policies.vla.recurrent_state import NO_CONTEXT
from engram.policies.vla.vla_policy import VlaPolicy
from engram.runtime.practice import OTHERS
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import get_gap
from engram.sim.world import WorldConfig
from engram.validation.evaluation import make_runtime, measure

CELLS = {
    "touch_unseen on turned_scaled": ("touch_unseen", "turned_scaled"),
    "intercept_grab on turned": ("intercept_grab", "turned"),
}
"""Cell -> task and twin."""
SEARCH = 50
"""Episodes of a practice."""
ARMS = {
    "both memories": ("", ""),
    "learner without the scene graph": ("scene graph", ""),
    "learner without the memory of its episode": ("episode", ""),
    "policy without the scene graph": ("", NO_CONTEXT),
    "policy without the memory of its episode": ("", "zeroed"),
}
"""Arm -> what is withheld from the learner, and the ablation of the policy that is measured with its weights."""


@dataclass(frozen=True)
class MemoryPracticeBenchmark:
    """What is measured."""

    quick: bool = False
    """Ten episodes of each measurement, in the first cell."""
    cells: tuple[str, ...] = tuple(CELLS)
    """Which ones."""
    seeds: int = 1
    """Practices of each cell."""
    first: int = 2
    """The first seed; nothing was tuned on 2 and those after it."""
    measured: int = 100
    """Episodes of each measurement."""
    work: Path = Path("runs/memory_practice")
    """Folder of the practices."""
    output: Path = RESULTS / "memory_practice.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in self.cells:
            if name not in CELLS:
                raise unknown_name("MemoryPracticeBenchmark.cells", name, tuple(CELLS))


class Withheld:
    """Experience without what was read of memory/context."""

    def __init__(self, source: ExperienceReader) -> None:
        self._source, self.id = source, source.id

    def catalogue(self, after: int = 0) -> Sequence[EpisodeInfo]:
        """Return what there is."""
        return self._source.catalogue(after)

    def episode(self, number: int) -> Sequence[Transition]:
        """Return an episode without it."""
        return [replace(one, context=None) for one in self._source.episode(number)]


class NoReading(EpisodeCloning):
    """Learns in what the head is conditioned by where no memory of the episode is read."""

    @torch.no_grad()
    def _condition(self, batch: Windows) -> Tensor:
        feed, here = self._feed(batch)
        rows, network = here.rows[here.valid], cast(EngramVLAPolicy, self._averaged)
        seen = dict(self._preprocess(feed.frames.done(rows, network.config.chunk_size)))
        return network.model.condition(seen, feed.perceive(network.model, rows, torch.device("cpu")))


def learnt(policy: VlaPolicy, folder: Path, found: MotionCorrection, seed: int, withheld: str) -> bytes:
    """Return the weights of a learner of ``policy`` that makes ``found`` part of them, with something withheld."""
    trainer = clone_policy(policy)
    assert isinstance(trainer, EpisodeCloning)
    source: Any = ExperienceReader(folder / "experience")
    others: Any = ExperienceReader(folder / OTHERS)
    if withheld == "scene graph":
        source, others = Withheld(source), Withheld(others)
        trainer.token_width = 0  # it would refuse such experience
    if withheld == "episode":
        trainer.__class__ = NoReading  # the same trainer, but for what it is conditioned by
    learner = Learner(source, policy, trainer, config=LearnerConfig(seed=seed))
    learner.see(others.episode(info.number) for info in others.catalogue())
    episodes = [info.number for info in source.catalogue()[:SEARCH]]
    return learner.correct((found, source.episode(number)) for number in episodes)[0]


def success(config: MemoryPracticeBenchmark, cell: str, weights: Path | None, ablation: str = "") -> Rate:
    """Return how often ``engram`` with ``weights`` does the cell's task."""
    task, on = CELLS[cell]
    policy = load_policy("engram", ablation=ablation)
    if weights is not None:
        policy.load_weights(weights, "practised")
    world = GapWorld(get_gap(on), WorldConfig(depth=True))
    runtime = make_runtime(follow(policy), world, pipeline=gap_pipeline(world))
    n = 10 if config.quick else config.measured
    report = measure(runtime.run_episode, "practised", (task,), n, FIRST_TEST_SEED, False, lambda *_: "")
    world.close()
    return report.per_task[task]


def runs(config: MemoryPracticeBenchmark) -> Iterator[dict[str, Any]]:
    """Yield what each practice found, and the success of every arm."""
    for cell in config.cells[:1] if config.quick else config.cells:
        for seed in range(config.first, config.first + config.seeds):
            yield _run(config, cell, seed)


def _run(config: MemoryPracticeBenchmark, cell: str, seed: int) -> dict[str, Any]:
    task, on = CELLS[cell]
    n = 10 if config.quick else config.measured
    wanted = ImproveConfig(
        task=task, on=on, policy="engram", episodes=SEARCH, measure_at=(0,), measured=n, verdict="oracle", seed=seed,
        search=SEARCH, work=config.work,
    )  # fmt: skip
    report, folder = practise(wanted), folder_of(wanted)
    curve = {row["episodes"]: row["success"] for row in report["curve"]}
    found = MotionCorrection(**report["corrections"][0])
    rates: dict[str, Any] = {"before practice": curve[0]}
    kept = folder / "arms.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for arm, (withheld, ablation) in ARMS.items() if found != MotionCorrection() else ():

        def measured(withheld: str = withheld, ablation: str = ablation) -> Rate:
            weights = folder / f"learnt_{withheld.replace(' ', '_') or 'both'}.safetensors"
            if not weights.exists():
                policy = load_policy("engram")
                assert isinstance(policy, VlaPolicy)
                write_atomic(weights, learnt(policy, folder, found, seed, withheld))
            return success(config, cell, weights, ablation)

        rates[arm] = _once(known, f"{arm}, n {n}", measured)
        write_atomic(kept, json.dumps(known).encode())
        Console(stderr=True).print(f"{cell}, seed {seed}, {arm}: {Rate(**rates[arm])}")
    return {"cell": cell, "seed": seed, "correction": asdict(found), "rates": rates}


def _once(known: dict[str, Any], name: str, measured: Callable[[], Rate]) -> dict[str, Any]:
    if name not in known:
        known[name] = asdict(measured())
    return dict(known[name])


def figures(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the success of each arm in each cell, over all practices."""
    rows = []
    for cell in dict.fromkeys(run["cell"] for run in found):
        of_cell = [run for run in found if run["cell"] == cell]
        for arm in ("before practice", *ARMS):
            rates = [Rate(**run["rates"][arm]) for run in of_cell if arm in run["rates"]]
            if not rates:
                continue
            rate = wilson(sum(one.successes for one in rates), sum(one.n for one in rates))
            name = slug(f"memory_practice {cell} {arm}").replace(" ", "_")
            rows.append(
                figure(name, rate.rate, rate.n, (rate.low, rate.high), practices=len(rates), cell=cell, arm=arm)
            )
    return rows


def main(config: MemoryPracticeBenchmark | None = None) -> None:
    """Practise, measure, print, save."""
    config = config or tyro.cli(MemoryPracticeBenchmark)
    where = machine()
    found = list(runs(config))
    rows = figures(found)
    table = Table("figure", "success", "95 % interval", "n", title="Practice of a policy that remembers and reads")
    for row in rows:
        low, high = row["interval"]
        table.add_row(row["name"], f"{row['value']:.3f}", f"{low:.3f}..{high:.3f}", str(row["n"]))
    Console(stderr=True).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "memory_practice", where, told, figures=rows, runs=found)


if __name__ == "__main__":
    main()
