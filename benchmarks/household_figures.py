"""Counts of the homes -> figures with intervals and targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from engram.benchmarks.household_past import SPANS
from engram.benchmarks.household_scores import Scores
from engram.core.statistics import wilson

BASELINES = ("captions", "newest_100", "full_history")
VERDICTS = ("right", "rightly none", "stale", "outdated", "missing")
PAST = ("questions", "right", "rightly none", "wrong", "missing", "knowable", "right of knowable")
"""What is counted of questions about the past."""
DISK_BUDGET_MB, RAM_BUDGET_MB = 512.0, 4096.0
"""What three weeks may cost: the store on disk, and the whole process with simulation, encoder and baselines."""


def figures(homes: Sequence[dict]) -> list[dict]:
    """Return the figures of the finished homes, all pooled."""
    total = {name: _pooled(homes, name) for name in homes[0]["scores"]}
    rows = _answers("engram", total["engram"]) + _graph("", total["engram"])
    for name in BASELINES:
        rows += _answers(name, total[name])
    rows.append(_stale_ratio(total))
    for name in ("engram", *BASELINES):
        rows += reliability(name, total[name].told)
    if total["engram_camera"].count:
        rows += _answers("camera_day", total["engram_camera"]) + _graph("camera_day_", total["engram_camera"])
    for name in ("engram", *BASELINES):
        rows += _past(name, total[name].count)
    return rows + _believed_then(total["engram"].count) + _contents(total["engram"].count) + _weeks(homes)


def _pooled(homes: Sequence[dict], name: str) -> Scores:
    total = Scores()
    for home in homes:
        total.count.update(home["scores"][name]["count"])
        total.error_m += home["scores"][name]["error_m"]
        total.told += home["scores"][name]["told"]
    return total


def _answers(name: str, scores: Scores) -> list[dict]:
    count, n = scores.count, scores.count["questions"]
    rows = [rate(f"{name}_answers_{verdict.replace(' ', '_')}", count[verdict], n) for verdict in VERDICTS]
    if scores.error_m:
        rows += [_quantile(f"{name}_position_error_p{q}_m", np.sort(scores.error_m), q / 100) for q in (50, 90)]
    return rows


def _quantile(name: str, ordered: np.ndarray, q: float) -> dict:
    """Return a quantile of right answers' errors with the 95 % interval of its rank (normal approximation)."""
    n = len(ordered)
    ranks = q * n + np.array((-1.96, 0.0, 1.96)) * np.sqrt(n * q * (1 - q))
    low, value, high = (round(float(ordered[int(np.clip(r, 0, n - 1))]), 4) for r in ranks)
    return {"name": name, "value": value, "interval": [low, high], "n": n, "target": "", "met": None}


def _graph(prefix: str, scores: Scores) -> list[dict]:
    count = scores.count
    return [
        rate(f"{prefix}recall", count["recalled"], count["in view"]),
        rate(f"{prefix}label_accuracy", count["named right"], count["matched"]),
        rate(f"{prefix}ghosts", count["ghosts"], count["believed"], 0.01),
        rate(f"{prefix}false_merges", count["fused into another"], count["fused"], 0.01),
        rate(f"{prefix}fused_into_its_twin", count["fused into its twin"], count["fused"]),
    ]


def _past(name: str, count: Counter[str]) -> list[dict]:
    """Where things were: of all questions, alike many from each span, and of what could be known."""
    n = {what: sum(count[f"past {what} {span}"] for span in SPANS) for what in PAST}
    rows = [rate(f"{name}_past_{what.replace(' ', '_')}", n[what], n["questions"]) for what in PAST[1:5]]
    rows.append(rate(f"{name}_past_knowable_right", n["right of knowable"], n["knowable"]))
    for span in SPANS:
        right, of = count[f"past right of knowable {span}"], count[f"past knowable {span}"]
        rows.append(rate(f"{name}_past_right_{span}", count[f"past right {span}"], count[f"past questions {span}"]))
        rows.append(rate(f"{name}_past_knowable_right_{span}", right, of))
    return rows


def _believed_then(count: Counter[str]) -> list[dict]:
    """Whether the memory knows today what it answered then."""
    same, n = (sum(count[f"{what} {span}"] for span in SPANS) for what in ("believed then same", "believed then"))
    contents = count["contents believed then same"], count["contents believed then"]
    return [rate("believed_then_same", same, n, at_least=0.98),
            rate("contents_believed_then_same", *contents, at_least=0.98)]  # fmt: skip


def _contents(count: Counter[str]) -> list[dict]:
    """What is and was on surfaces, and in drawers and cupboards, that the robot knew."""
    rows = []
    for when in ("now", "then"):
        for relation in ("on", "in"):
            right = count[f"{relation} {when} right"]
            rows.append(rate(f"{relation}_{when}_precision", right, count[f"{relation} {when} told"]))
            rows.append(rate(f"{relation}_{when}_recall", right, count[f"{relation} {when} there"]))
    return rows


def reliability(name: str, told: Sequence[tuple[float, bool]]) -> list[dict]:
    """Return Brier score and expected calibration error (10 bins) of confidences, the former beside knowing nothing.

    Who answers always with the share of right answers gets p (1 - p): a confidence that says more is below it.
    """
    if not told:
        return []
    sure, right = (np.array(values, float) for values in zip(*told, strict=True))
    squares = (sure - right) ** 2
    brier, half = float(squares.mean()), 1.96 * float(squares.std()) / np.sqrt(len(squares))
    bins = np.minimum((sure * 10).astype(int), 9)
    gaps = [abs(float((sure[bins == b] - right[bins == b]).sum())) for b in range(10)]
    nothing = float(right.mean() * (1 - right.mean()))
    rows = [(f"{name}_brier", brier, [round(brier - half, 4), round(brier + half, 4)]),
            (f"{name}_brier_knowing_the_mean", nothing, None),
            (f"{name}_calibration_error", sum(gaps) / len(sure), None)]  # fmt: skip
    return [{"name": label, "value": round(value, 4), "interval": interval, "n": len(sure), "target": "", "met": None}
            for label, value, interval in rows]  # fmt: skip


def _stale_ratio(total: dict[str, Scores]) -> dict:
    shares = {name: total[name].count["stale"] / total[name].count["questions"] for name in ("engram", *BASELINES)}
    best = min(BASELINES, key=shares.__getitem__)
    ratio = shares["engram"] / shares[best] if shares[best] else float("inf")
    n = total["engram"].count["questions"]
    target = f"<= 0.333 of the best baseline ({best})"
    return {"name": "stale_answers_ratio", "value": round(ratio, 4), "interval": None, "n": n, "target": target,
            "met": ratio <= 1 / 3}  # fmt: skip


def _weeks(homes: Sequence[dict]) -> list[dict]:
    """Three weeks of operation: size, and whether answers got worse from the first to the last week.

    How much can be known depends on what the home did; *knowable* is what the robot looked at since it is there.
    """
    days = [home["days"] for home in homes]
    last = max(len(d) for d in days)
    first = range(1, min(8, last))
    end = range(max(last - 7, 1), last)
    rows = []
    for what, of, told in (
        ("right", "questions", "answers_right"),
        ("right_of_knowable", "knowable", "knowable_right"),
    ):
        for name, span in (("first", first), ("last", end)):
            right = sum(d[i][what] for d in days for i in span if i < len(d))
            rows.append(rate(f"{name}_week_{told}", right, sum(d[i][of] for d in days for i in span if i < len(d))))
    week = min(last, 21) - 1
    for name, budget in (("disk_mb", DISK_BUDGET_MB), ("ram_mb", RAM_BUDGET_MB)):
        value = max(d[min(week, len(d) - 1)][name] for d in days)
        rows.append({"name": f"{name}_after_day_{week + 1}", "value": value, "interval": None, "n": len(homes),
                     "target": f"<= {budget:g}", "met": value <= budget})  # fmt: skip
    fell = (rows[0]["value"] or 0.0) - (rows[1]["value"] or 0.0)
    rows.append({"name": "answers_right_fell_by", "value": round(fell, 4), "interval": None, "n": rows[1]["n"],
                 "target": "<= 0.02", "met": fell <= 0.02})  # fmt: skip
    return rows


def rate(
    name: str, successes: int, n: int, at_most: float | None = None, *, at_least: float | None = None
) -> dict:  # fmt: skip
    """Return a share with its Wilson interval; questions of one home are not independent, so it is too narrow."""
    if not n:
        return {"name": name, "value": None, "interval": None, "n": 0, "target": "", "met": None}
    share = wilson(successes, n)
    target, met = "", None
    if at_most is not None:
        target, met = f"<= {at_most}", share.rate <= at_most
    elif at_least is not None:
        target, met = f">= {at_least}", share.rate >= at_least
    return {
        "name": name,
        "value": round(share.rate, 4),
        "interval": [round(share.low, 4), round(share.high, 4)],
        "n": n,
        "target": target,
        "met": met,
    }
