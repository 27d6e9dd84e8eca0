"""What :mod:`engram.benchmarks.promise` saw: goals, what happened between them, the figures, and the picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from engram.benchmarks.report import figure
from engram.core.statistics import Rate, wilson

WINDOW = 10
"""Goals over which the picture's curve is averaged."""
LONGEST = 110
"""Characters of a reason that are drawn."""
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
    """Draw over time how goals went, which version drove, and what happened: numbers in the picture, words below it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    told = [one for one in story.happenings if one.what in COLORS]
    drawn = Figure(figsize=(10, 4.0 + 0.17 * len(told)), layout="constrained")
    axes, below = drawn.subplots(2, height_ratios=(4.0, 0.17 * len(told)))
    versions = list(dict.fromkeys(goal["version"] for goal in story.goals))
    named: set[str] = set()
    for version, run in groupby(story.goals, lambda goal: str(goal["version"])):
        those, color = list(run), f"C{versions.index(version)}"
        reached = [float(goal["truth"]) for goal in those]
        means = [100 * sum(reached[max(0, n - WINDOW) : n]) / min(n, WINDOW) for n in range(1, len(those) + 1)]
        minutes = [goal["at_s"] / 60 for goal in those]
        axes.plot(minutes, means, linewidth=2, color=color, label=None if version in named else version)
        axes.scatter(minutes, [100 * one for one in reached], s=9, color=color, alpha=0.6)
        named.add(version)
    for begins, ends in _rests(story):
        axes.axvspan(begins / 60, ends / 60, color="0.92")
    for number, one in enumerate(told, 1):
        axes.axvline(one.at_s / 60, color=COLORS[one.what], linestyle="--", linewidth=1)
        high = 107 + 6 * (number % 3)  # what happens at once stands one above the other
        axes.text(one.at_s / 60, high, str(number), color=COLORS[one.what], fontsize=8, ha="center")
        text = "" if one.what == "drives" else _short(one.text)
        words = (
            f"{number}  {one.at_s / 60:.0f} min  {': '.join(filter(None, (f'{one.what} {one.version}'.strip(), text)))}"
        )
        below.text(0.0, 1.0 - (number - 0.5) / len(told), words, color=COLORS[one.what], fontsize=8, va="center")
    axes.set(xlabel="minutes (grey: the robot rests, and the policy practises in simulation)", ylim=(-4, 126))
    axes.set(ylabel=f"goals reached, of the last {WINDOW} [%]", yticks=range(0, 101, 20))
    axes.legend(loc="center left", bbox_to_anchor=(0.0, 0.62), fontsize=8, title="dots: single goals", title_fontsize=8)
    below.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "promise"}):  # the same picture, the same file
        drawn.savefig(path, format="svg", metadata={"Date": None})


def _rests(story: Story) -> list[tuple[float, float]]:
    """Return begin and end [s] of each rest: it ends with the next goal, or with what happens then."""
    found = []
    for one in story.happenings:
        if one.what == "rests":
            after = [h.at_s for h in story.happenings if h.at_s > one.at_s and h.what in ("drives", "knocked")]
            found.append((one.at_s, min(after, default=one.at_s)))
    return found


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
