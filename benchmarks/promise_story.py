"""What :mod:`engram.benchmarks.promise` saw: goals, what happened between them, the figures, and the picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.benchmarks.report import figure
from engram.core.statistics import Rate, wilson

WINDOW = 20
"""Goals over which the picture's curve is averaged."""
NAMES = ("first", "second", "third", "fourth")
"""Of the versions that drove, in their order."""
COLORS = {
    "drives": "tab:green",
    "verdict": "tab:gray",
    "knocked": "tab:red",
    "rolled back": "tab:blue",
    "refused": "tab:purple",
}


@dataclass(frozen=True)
class Happening:
    """Something that is told."""

    what: str
    text: str
    version: str
    goals: int
    """Goals that had ended before."""
    at_s: float
    """Since the nodes were active, wall clock [s]."""


@dataclass
class Story:
    """What happened so far."""

    goals: list[dict[str, Any]] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    """Which attempt -> why the learner refused it; empty: it did not."""

    def first(self, what: str) -> Happening | None:
        """Return the first happening of that kind."""
        return next((one for one in self.happenings if one.what == what), None)


def by_version(story: Story) -> dict[tuple[str, str], Rate]:
    """Return how often the goals of a task were reached with a version, by the simulator, until the robot was knocked:
    (task, "first") is what drove first, and so on."""
    knocked = story.first("knocked")
    before = story.goals[: knocked.goals if knocked else None]
    rates = {}
    for version, name in zip(dict.fromkeys(goal["version"] for goal in before), NAMES, strict=False):
        for task in dict.fromkeys(goal["task"] for goal in before if goal["version"] == version):
            those = [goal["truth"] for goal in before if (goal["task"], goal["version"]) == (task, version)]
            rates[task, name] = wilson(sum(those), len(those))
    return rates


def figures(story: Story) -> list[dict[str, Any]]:
    """Return what the story comes to."""
    rows = []
    for (task, name), rate in by_version(story).items():
        rows.append(figure(f"promise_success_{task}_{name}_version", rate.rate, rate.n, (rate.low, rate.high)))
    right = [(goal["outcome"] == "succeeded") == goal["truth"] for goal in story.goals]
    if right:
        rate = wilson(sum(right), len(right))
        rows.append(figure("promise_verdict_right", rate.rate, rate.n, (rate.low, rate.high)))
    promoted = [one for one in story.happenings if one.what == "verdict" and one.text.startswith("promote")]
    knocked, back = story.first("knocked"), story.first("rolled back")
    rows.append(
        figure("promise_promoted_by_the_gate", len(promoted), len(promoted), target=">= 2", met=len(promoted) >= 2)
    )
    if promoted:
        rows.append(figure("promise_goals_until_promoted", promoted[0].goals, 1))
        rows.append(figure("promise_minutes_until_promoted", promoted[0].at_s / 60, 1))
    goals = back.goals - knocked.goals if back is not None and knocked is not None else -1
    rows.append(figure("promise_goals_until_rolled_back", goals, 1, target=">= 0", met=goals >= 0))
    refused = sum(bool(why) for why in story.refusals.values())
    n = len(story.refusals)
    rows.append(figure("promise_ruined_refused", refused, n, target="== 2", met=refused == n == 2))
    return rows


def picture(path: Path, story: Story) -> None:
    """Draw the success of the last goals over all goals, what drove, and what happened."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    drawn = Figure(figsize=(11, 4.5), layout="constrained")
    axes = drawn.add_subplot()
    done = [float(goal["truth"]) for goal in story.goals]
    means = [sum(done[max(0, i - WINDOW) : i]) / min(i, WINDOW) for i in range(1, len(done) + 1)]
    axes.plot(range(1, len(done) + 1), [100 * mean for mean in means], color="black")
    levels = [96, 88, 80, 72]
    for number, one in enumerate(h for h in story.happenings if h.what in COLORS):
        axes.axvline(one.goals, color=COLORS[one.what], linestyle="--", linewidth=1)
        label = f" {one.what} {one.version}" + (f": {one.text[:40]}" if one.what != "drives" and one.text else "")
        axes.text(one.goals, levels[number % len(levels)], label, color=COLORS[one.what], fontsize=8)
    axes.set(xlabel="goals", ylabel=f"reached, of the last {WINDOW} [%]", ylim=(0, 104))
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, format="svg", metadata={"Date": None})
