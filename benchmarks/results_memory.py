"""The tables of the results page that are about the robot's memory."""

from __future__ import annotations

from collections.abc import Mapping

from engram.benchmarks.result_files import ResultFile, number, percent, samples, short, table, target

Results = Mapping[str, ResultFile]

BASELINES = {
    "engram": "Engram",
    "full_history": "all sightings",
    "newest_100": "newest 100 sightings (as KARMA's code)",
    "captions": "captions and vector search (as ReMEmbR)",
}
SEARCHERS = {
    "none": "no memory",
    "long_term": "only the rounds' memory",
    "short_term": "only today's memory",
    "both": "Engram, both",
    "oracle": "upper bound: oracle object locations",
}


def household_now(results: Results) -> list[str]:
    """Where is it now? Right and stale answers, and how well the confidence is calibrated."""
    result = results["household"]
    config = result.content["config"]
    rows = []
    for key, name in BASELINES.items():
        right, stale, missing = (result.figure(f"{key}_answers_{kind}") for kind in ("right", "stale", "missing"))
        brier, error = result.figure(f"{key}_brier"), result.figure(f"{key}_calibration_error")
        cells = [percent(right), percent(stale, 2), percent(missing), number(brier), number(error)]
        rows.append([name, *cells, samples(right)])
    head = ("memory", "right", "stale", "missing", "Brier score", "calibration error", "n")
    return [
        f"A simulated home that is lived in: {config['homes']} homes, {config['days']} days, three rounds a day. The",
        "robot is asked where every kind of thing is. *Right*: within 10 cm. *Stale*: wrong although the robot has",
        "looked there since the thing left. The sensor model was fitted to rendered frames through the real",
        "perception. The rest is *outdated*: wrong, and nobody has looked there since. [What is scored]"
        "(explanation/household.md) defines every word.",
        "Questions about one home depend on each other: in this section and the two below, the intervals are narrower",
        "than the truth.",
        "",
        *table(head, rows),
    ]


def household_past(results: Results) -> list[str]:
    """Where was it? By how long ago."""
    result = results["household"]
    rows = []
    for key, name in BASELINES.items():
        known = result.figure(f"{key}_past_knowable_right")
        ages = [
            result.figure(f"{key}_past_knowable_right_{age}") for age in ("0_to_1_days", "2_to_7_days", "over_7_days")
        ]
        rows.append([name, percent(known), *(percent(age) for age in ages), samples(known)])
    head = ("memory", "right of what it could know", "today and yesterday", "2 to 7 days ago", "longer ago", "n")
    return ["Where was it at the end of an earlier round?", "", *table(head, rows)]


QUALITY = {
    "ghosts": "ghosts: believed in although a look has disproved them",
    "false_merges": "false merges: a sighting fused into another kind of thing",
    "fused_into_its_twin": "sightings fused into an identical twin",
    "recall": "recall of what was in view",
    "label_accuracy": "label accuracy",
    "believed_then_same": "'where did you think it was' answered as it was answered then",
    "contents_believed_then_same": "'what did you think was in it' answered as it was answered then",
    "on_now_precision": "what is on a surface: precision",
    "on_now_recall": "what is on a surface: recall",
    "in_now_precision": "what is in a drawer or cupboard: precision",
    "in_now_recall": "what is in a drawer or cupboard: recall",
    "first_week_answers_right": "right answers in the first week",
    "last_week_answers_right": "right answers in the last week",
    "camera_day_answers_right": "right answers on a day through rendered images and the real detector",
}


def household_quality(results: Results) -> list[str]:
    """What the scene graph gets wrong, and whether it holds over the weeks."""
    result = results["household"]
    rows = [
        [name, percent(result.figure(key), 2), samples(result.figure(key)), target(result.figure(key))]
        for key, name in QUALITY.items()
    ]
    return table(("figure", "value", "n", "target"), rows)


def fetching(results: Results) -> list[str]:
    """Fetching things that residents move: success and effort by what the robot may use."""
    result = results["fetch"]
    config = result.content["config"]
    rows = []
    for key, name in SEARCHERS.items():
        success = result.figure(f"fetch_{key}_success")
        effort = [result.figure(f"fetch_{key}_{unit}_to_success") for unit in ("looks", "rooms", "metres")]
        rows.append([name, percent(success), *(number(row) for row in effort), samples(success)])
    ratio = result.figure("fetch_success_both_over_none")
    lines = [
        f"{config['homes']} homes. In each, {config['rounds']} days of inspection rounds, then {config['streams']}",
        f"days of {config['tasks']} fetching tasks. Success is finding the object within {config['looks']} looks.",
        "Effort counts every search until it finds.",
        "",
        *table(("robot uses", "success", "looks", "rooms", "metres", "n"), rows),
        f"Success with memory over success without: {number(ratio)} (target {target(ratio)}).",
        "",
    ]
    return lines + _effort(results)


def _effort(results: Results) -> list[str]:
    fetch, limit = results["fetch"], results["fetch_limit"]
    rows = []
    for unit in ("looks", "rooms", "metres"):
        ours = fetch.figure(f"fetch_{unit}_both_over_none")
        best = limit.figure(f"fetch_{unit}_limit_over_none")
        oracle = fetch.figure(f"fetch_{unit}_oracle_over_none")
        rows.append([unit, number(ours), target(ours), number(best), number(oracle), samples(ours)])
    head = (
        "share of no memory",
        "Engram",
        "target",
        "upper bound: exact habits, perfect eyes",
        "upper bound: oracle",
        "n",
    )
    return table(head, rows)


def advice(results: Results) -> list[str]:
    """Look only when the memory advises it."""
    result = results["fetch"]
    rows = []
    for key, name in (("never", "never look"), ("advised", "look as advised"), ("always", "always search")):
        right, metres = result.figure(f"where_{key}_right"), result.figure(f"where_{key}_metres")
        rows.append([name, percent(right), number(metres, "m"), samples(right)])
    return ['"Where is it?", with at most 5 stops:', "", *table(("robot", "right", "way", "n"), rows)]


POLICIES = {
    "newest": "newest",
    "fifo": "FIFO",
    "lru": "LRU",
    "lfu": "LFU",
    "w_tiny_lfu": "W-TinyLFU",
    "learned": "learned (default)",
    "limit": "upper bound: unbounded",
}
TRACES = {
    "seen": "recorded from the robot's memory",
    "household": "simulated household, perfect detection",
    "made_up": "synthetic home, 120 objects",
}


def eviction(results: Results) -> list[str]:
    """Which changes short-term memory keeps."""
    result = results["eviction"]
    keys = [name for name in result.figures if name.endswith("_newest_hit_rate")]
    rows = []
    for key in keys:
        trace, _, size = key.removeprefix("eviction_").removesuffix("_newest_hit_rate").rpartition("_")
        cells = [result.figure(f"eviction_{trace}_{size}_{policy}_hit_rate") for policy in POLICIES]
        rows.append([TRACES.get(trace, trace), size, *(percent(cell) for cell in cells), samples(*cells)])
    return [
        "Share of later questions that short-term memory answers correctly, by eviction policy. Homes are held out",
        "from the training of the learned policy. Questions about one home depend on each other, so that the",
        "intervals are narrower than the truth.",
        "",
        *table(("trace", "objects kept", *POLICIES.values(), "n"), rows),
    ]


SPEED = {
    "update": "update with 50 detections",
    "text_query": "text query",
    "place_query": "query near a place",
    "time_query": "query of a past time at a place",
    "room_query": "what is in a room",
    "room_then_query": "what was in a room",
    "commit": "commit",
    "load": "load from disk",
}


def speed(results: Results) -> list[str]:
    """CPU time of the scene graph by its size."""
    result = results["memory"]
    sizes = result.content["config"]["sizes"]
    rows = []
    for key, name in SPEED.items():
        cells = [result.figure(f"memory_{key}_cpu_ms_{size}") for size in sizes]
        shown = [f"{short(row['value'])} (p99 {short(row['p99'])})" if row else "–" for row in cells]
        ratios = [short(row["ratio"]) for row in cells if row and row.get("ratio")]
        rows.append([name, *shown, ratios[-1] if ratios else "–"])
    head = ("CPU ms, p50", *(f"{size:,} objects" for size in sizes), "ratio to the bare operation, largest size")
    return [
        "Median time of the processor. *Bare*: the one operation that each cannot do without, such as the index "
        "look-up or "
        "the write of the same bytes. *Growth*: the time at the larger size over that at the smaller. *Over "
        "slowest*: all "
        "four stores together over the slowest of them.",
        "",
        *table(head, rows),
        *_growth(results),
    ]


def _growth(results: Results) -> list[str]:
    rows = []
    for name, row in results["memory"].figures.items():
        if "growth" in name or "four_stores" in name:
            rows.append([name.removeprefix("memory_").replace("_", " "), number(row), samples(row), target(row)])
    for name, row in results["memory_ram"].figures.items():
        size = int(name.rsplit("_", 1)[1])
        text = f"RAM of the process over what the stores count, {size:,} objects"
        rows.append([text, number(row), samples(row), target(row)])
    weeks = {"most_ram_mb": "largest RAM, MB", "most_disk_mb": "largest disk, MB"}
    for key, text in weeks.items():
        row = results["memory_weeks"].figure(f"weeks_{key}")
        beside = f"{number(row)} (unbounded {short(row['unbounded'])})"
        rows.append([f"three weeks under a budget: {text}", beside, samples(row), target(row)])
    row = results["memory_weeks"].figure("weeks_right_answers_last_week")
    beside = f"{percent(row)} (unbounded {100 * row['unbounded']:.1f} %)"
    rows.append(["three weeks under a budget: right answers in the last week", beside, samples(row), target(row)])
    return table(("figure", "value", "n", "target"), rows)
