"""What the proof of the policy's memory claims: rates with intervals, differences, and the tables they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from engram.core.statistics import Rate, mean_rate
from engram.sim.tasks import expand, get_task
from engram.sim.tasks.memory import MemoryTask

if TYPE_CHECKING:
    from engram.benchmarks.memory_tasks import MemoryTasksBenchmark

OURS = "ours"
SOLVED, SOLVED_TASKS, MEAN, GAIN = 0.90, 10, 0.95, 0.40
"""Targets: so many tasks with at least this success, least mean success, and so much more than without memory."""
MEMORYLESS = "none"
"""The arm that learnt to act by the present alone; a memory that is emptied is a state that training never saw."""
Found = dict[str, dict[str, Rate]]
"""Arm -> task -> rate."""


def chance(task: str) -> float:
    """Return how often a guess is right."""
    known = get_task(task)
    assert isinstance(known, MemoryTask)
    return 1.0 / known.cues


def figures(found: Found, config: MemoryTasksBenchmark) -> list[dict[str, Any]]:
    """Return what is claimed, each with interval, n and target."""
    memory, plain = expand(config.tasks), expand(config.plain_tasks)
    out = []
    for arm, tasks in found.items():
        for suite, names in (("memory_tasks", memory), ("markovian_tasks", plain)):
            if arm not in config.conditions and names and all(name in tasks for name in names):
                least = MEAN if (arm, suite) == (OURS, "memory_tasks") else None
                out.append(figure(f"{suite}_mean_{arm}", mean_rate([tasks[name] for name in names]), least))
    ours = found[OURS]
    there = [name for name in memory if name in ours]
    out += [figure(f"{name}_ours", ours[name], SOLVED) for name in there]
    solved = sum(ours[name].rate >= SOLVED for name in there)
    out.append(plain_figure("memory_tasks_solved_ours", solved, None, len(there), SOLVED_TASKS, solved >= SOLVED_TASKS))
    out += _gains(found, memory, config) + _losses(found, plain)
    for arm in [arm for arm in config.conditions if arm in found]:
        under, usual = (mean_rate([found[a][name] for name in found[arm] if name in ours]) for a in (arm, OURS))
        value, low, high, n = difference(under, usual)
        name = arm.replace(" ", "_").replace("-", "_")
        out.append(figure(f"memory_tasks_mean_{name}", under))
        out.append(plain_figure(f"memory_tasks_{name}_minus_ours", value, (low, high), n, None, None))
    guess = sum(chance(name) for name in memory) / len(memory)
    out.append(plain_figure("memory_tasks_mean_chance", guess, None, len(memory), None, None))
    if len(there) == len(memory):
        mean = mean_rate([ours[name] for name in memory])
        beyond = (mean.low - guess, mean.high - guess)
        out.append(plain_figure("memory_tasks_gain_over_chance", mean.rate - guess, beyond, mean.n, None, None))
    return out


def _gains(found: Found, memory: tuple[str, ...], config: MemoryTasksBenchmark) -> list[dict[str, Any]]:
    """Return by how much ours is better in the mean than each arm that has run everywhere."""
    out = []
    for arm in found:
        if arm == OURS or arm in config.conditions or not all(name in found[a] for a in (OURS, arm) for name in memory):
            continue
        value, low, high, n = difference(*(mean_rate([found[a][name] for name in memory]) for a in (OURS, arm)))
        target = GAIN if arm == MEMORYLESS else None
        met = None if target is None else value >= target
        out.append(plain_figure(f"memory_tasks_gain_over_{arm}", value, (low, high), n, target, met))
    return out


def _losses(found: Found, plain: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what a memory costs where none is needed, or hurt others: no loss if the interval reaches 0."""
    out = []
    for arm, name, tasks in (
        *((arm, "markovian_tasks", plain) for arm in ("base", MEMORYLESS)),
        (MEMORYLESS, "intercept_grab", ("intercept_grab",)),
    ):
        if arm in found and tasks and all(task in found[a] for a in (OURS, arm) for task in tasks):
            value, low, high, n = difference(*(mean_rate([found[a][task] for task in tasks]) for a in (OURS, arm)))
            out.append(plain_figure(f"{name}_ours_minus_{arm}", value, (low, high), n, 0.0, high >= 0.0))
    return out


def difference(a: Rate, b: Rate) -> tuple[float, float, float, int]:
    """Return a - b with its interval (MOVER, as in ``mean_rate``), and the lesser n."""
    value = a.rate - b.rate
    low = value - ((a.rate - a.low) ** 2 + (b.high - b.rate) ** 2) ** 0.5
    high = value + ((a.high - a.rate) ** 2 + (b.rate - b.low) ** 2) ** 0.5
    return value, low, high, min(a.n, b.n)


def figure(name: str, rate: Rate, target: float | None = None) -> dict[str, Any]:
    """Return one figure: ``rate``, and whether it reaches ``target``."""
    met = None if target is None else rate.rate >= target
    return plain_figure(name, rate.rate, (rate.low, rate.high), rate.n, target, met)


def plain_figure(
    name: str, value: float, interval: tuple[float, float] | None, n: int, target: float | None, met: bool | None
) -> dict[str, Any]:
    """Return one figure as the JSON file keeps it."""
    return {
        "name": name,
        "value": round(value, 4),
        "interval": None if interval is None else [round(v, 4) for v in interval],
        "n": n,
        "target": target,
        "met": met,
    }


def tables(found: Found, config: MemoryTasksBenchmark) -> list[Table]:
    """Return success per task and arm in percent, with its interval and n: as trained, and in other conditions."""
    arms = [arm for arm in found if arm not in config.conditions]
    beyond = [arm for arm in (OURS, *config.conditions) if arm in found]
    memory, plain = expand(config.tasks), expand(config.plain_tasks)
    shown = [_table("As trained", (memory, plain), found, arms)]
    return shown if len(beyond) < 2 else [*shown, _table("Beyond training", (memory,), found, beyond)]


def _table(title: str, suites: tuple[tuple[str, ...], ...], found: Found, arms: list[str]) -> Table:
    shown = Table("task", "chance", *arms, title=f"{title}: success in percent [95 % interval] (n)")
    for tasks in suites:
        for name in tasks:
            guess = f"{100 * chance(name):.0f}" if hasattr(get_task(name), "cues") else ""
            shown.add_row(name, guess, *(cell(found[arm].get(name)) for arm in arms))
        there = {arm: [found[arm][name] for name in tasks if name in found[arm]] for arm in arms}
        shown.add_row("mean", "", *(cell(mean_rate(rates) if rates else None) for rates in there.values()))
        shown.add_section()
    return shown


def cell(rate: Rate | None) -> str:
    """Return success in percent, its interval and n; empty where nothing was run."""
    return "" if rate is None else f"{100 * rate.rate:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}] ({rate.n})"
