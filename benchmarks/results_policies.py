"""The tables of the results page that are about policies: success rates in simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engram.benchmarks.result_files import ResultFile, percent, samples, table, target
from engram.core.statistics import Rate, mean_rate
from engram.sim.tasks import SUITES

Results = Mapping[str, ResultFile]

CHECKPOINTS = Path(__file__).resolve().parent.parent / "policies" / "checkpoints"
ARMS = {
    "ours": "`memory`, then shipped",
    "bank": "bank",
    "bank_k4": "bank, gradients through 4 writes",
    "bank_k1": "bank, gradients through 1 write",
    "hcam": "HCAM",
    "gru": "GRU",
    "retrieval": "retrieval",
    "first_frame": "first frame",
    "fast_forgetful": "Fast and Forgetful Memory",
    "place": "place",
    "frame_stack": "frame stack",
    "none": "no memory",
}
"""The policies that the memory tasks were run with, by their name in ``memory_tasks.json``."""
ABLATIONS = {
    "ours-zeroed": "memory emptied (`zeroed`)",
    "ours-swapped": "memory of the previous episode (`swapped`)",
    "ours-noise": "memory replaced by noise (`noise`)",
    "oracle_state": "scripted expert: knows the cue, replans every 4 steps",
    "chance": "chance: guesses the cue, then acts perfectly",
}
CONDITIONS = {
    "held_out_words": "instructions in held-out wordings",
    "delay_x2": "twice the longest training delay",
    "delay_x4": "four times the longest training delay",
    "things_x3": "three times as many objects",
    "new_colours": "colors never seen in training",
    "most_alternatives": "the most alternatives a task has",
}


def before_relight(result: ResultFile) -> list[str]:
    """Say so where ``result`` was measured with a shipped policy as it was before it was taught other light."""
    measured = result.content["subject"].partition("engram_vla-")[2][:12]
    for path in sorted(CHECKPOINTS.glob("*/card.json")):
        if measured and json.loads(path.read_text()).get("started_from", {}).get("sha256", "").startswith(measured):
            name = path.parent.name
            return [f"Measured before the camera encoders of `{name}` were taught [other light](#other-light).", ""]
    return []


def evaluation(result: ResultFile) -> list[str]:
    """Return the table of one ``engram eval`` run."""
    per_task, mean = result.content["per_task"], result.content["mean"]
    rows = [[f"`{task}`", percent(row), str(row["n"])] for task, row in per_task.items()]
    if len(per_task) > 1:
        rows.append(["**mean**", f"**{percent(mean)}**", str(mean["n"])])
    return table(("task", "success", "n"), rows)


def suite(per_task: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the mean of the tasks of the suite ``name``, with interval and n."""
    return asdict(mean_rate([Rate(**per_task[task]) for task in SUITES[name] if task in per_task]))


def _episodes(per_task: Mapping[str, Any]) -> int:
    return int(next(iter(per_task.values()))["n"])


def every_task(results: Results) -> list[str]:
    """The policy ``engram`` on every task, and on those that need a memory without it."""
    ours, emptied, without = (
        results[name].content["per_task"] for name in ("eval_engram", "eval_engram_zeroed", "eval_engram_no_context")
    )
    rows = []
    for name in ("tabletop", "memory", "unseen"):
        for task in SUITES[name]:
            spoilt = emptied.get(task) or without.get(task)
            rows.append([f"`{task}`", percent(ours[task]), str(ours[task]["n"]), percent(spoilt) if spoilt else "–"])
        spoilt = {"memory": emptied, "unseen": without}.get(name)
        mean = suite(ours, name)
        cells = [f"**mean of `{name}`**", f"**{percent(mean)}**", str(mean["n"])]
        rows.append([*cells, f"**{percent(suite(spoilt, name))}**" if spoilt else "–"])
    return [
        "The policy `engram` remembers its episode and acts on the scene graph. *Without*: in the suite `memory` its",
        "own memory is emptied at every step (`--ablation zeroed`), in the suite `unseen` it gets nothing of the",
        f"scene graph (`no_context`); n = {_episodes(emptied)} and {_episodes(without)} a task. An emptied memory in",
        "mid-episode is a state that training never saw: this shows what the policy does with its memory, not what one",
        "without a memory could do. *Chance*, in [the table of sequence memories](#which-sequence-memory), is the",
        "success of who guesses the cue and then acts perfectly.",
        "",
        *before_relight(results["eval_engram"]),
        *table(("task", "success", "n", "without"), rows),
    ]


def tabletop(results: Results) -> list[str]:
    """The six tabletop tasks: the shipped policy beside the scripted experts, with held-out words."""
    base, experts, words = (results[name].content for name in ("eval_base", "eval_experts", "eval_base_held_out"))

    def row(name: str, key: str | None) -> list[str]:
        cells = [content["per_task"][key] if key else content["mean"] for content in (base, words, experts)]
        return [name, *(percent(cell) for cell in cells), " / ".join(str(cell["n"]) for cell in cells)]

    rows = [row(f"`{task}`", task) for task in base["per_task"]] + [row("**mean**", None)]
    head = ("task", "`base`", "`base`, held-out wordings", "scripted experts (privileged)", "n")
    return [
        "Success from camera images on seeds that training never used. The experts read poses from the simulator.",
        "",
        *table(head, rows),
    ]


def swapped_words(results: Results) -> list[str]:
    """The same scene with the instruction of another object."""
    lines = [
        "The scene stays the same and the instruction names another object. A policy that ignores the words would",
        "still reach the original goal.",
        "",
        *before_relight(results["eval_engram_swap"]),
    ]
    rows = []
    for name in ("eval_base_swap", "eval_engram_swap"):
        content = results[name].content
        for task in content["swapped_goal"]:
            cells = [content[key][task] for key in ("unswapped", "swapped_goal", "original_goal")]
            rows.append([f"`{name.split('_')[1]}`", f"`{task}`", *(percent(c, 0) for c in cells), samples(*cells)])
    head = ("policy", "task", "usual instruction", "swapped: new goal", "swapped: original goal", "n")
    return lines + table(head, rows)


def other_light(results: Results) -> list[str]:
    """The shipped policies where light, pictures or table are not those of their training."""
    result = results["light"]
    arms = result.content["arms"]
    named = {"as_trained": "as trained", "darker_15": "lamps 15 % darker", "darker_30": "lamps 30 % darker",
             "brighter_30": "lamps 30 % brighter", "noisy": "noise of 0.05", "other_looks": "other looks"}  # fmt: skip
    means = {name: [result.figure(f"light_{arm}_{name}") for arm in arms] for name in named}
    rows = [[words, *map(percent, means[name]), samples(*means[name])] for name, words in named.items()]
    judged = [row for row in result.figures.values() if row.get("target")]
    missed = sum(not row["met"] for row in judged)
    heads = [f"`{arm.removesuffix('_before')}`" + ", before" * arm.endswith("_before") for arm in arms]
    return [
        "The mean of the six tabletop tasks, on the same scenes. *Before*: the same policy before",
        "[`engram relight`](how-to/record_train_evaluate.md#other-light) taught its camera encoders. *Noise*: its",
        "standard deviation, of the range from black to white. *Other looks*: lamps, their direction, the colour of",
        "the table and a small displacement of the perception camera are drawn for each scene. How the teaching alters",
        "pictures was chosen on other scenes. The target of",
        f"each policy in each light ({judged[0]['target']}) is missed in {missed} of {len(judged)}.",
        "",
        *table(("light", *heads, "n"), rows),
    ]


def decision_rates(results: Results) -> list[str]:
    """How often the policy replans, undisturbed and when an object is pushed."""
    rows = [[name, percent(row), samples(row)] for name, row in results["chunking"].figures.items()]
    return [
        "The policy `base` plans action chunks of 16 steps. The rows differ in how many steps it executes before it",
        'replans. "Pushed": the object is displaced by about 6 cm while the arm moves towards it. "Late": the answer',
        "arrives that many control steps after the observation while the robot keeps moving. "
        '"Left early at x m": the policy',
        "replans at every step and switches to the new chunk when the two differ by more than x.",
        "",
        *table(("variant", "success", "n"), rows),
    ]


def pushed(results: Results) -> list[str]:
    """The policy ``engram`` when the object is pushed."""
    return [
        "The policy `engram`, with its own settings, when the object is pushed while the arm approaches it:",
        "",
        *before_relight(results["eval_engram_push"]),
        *evaluation(results["eval_engram_push"]),
    ]


def memory_arms(results: Results) -> list[str]:
    """Mean success on the twelve memory tasks and on the six tabletop ones, by kind of sequence memory."""
    result = results["memory_tasks"]
    rows = []
    for key, name in (ARMS | ABLATIONS).items():
        mean, plain = result.figure(f"memory_tasks_mean_{key}"), result.figure(f"markovian_tasks_mean_{key}")
        steps = result.content["arms"].get(key, {}).get("step")
        n = "–" if key == "chance" else samples(mean)  # its row counts tasks, not episodes
        rows.append([name, percent(mean), n, percent(plain), samples(plain), f"{steps:,}" if steps else "–"])
    head = ("policy", "memory tasks", "n", "tabletop tasks", "n", "training steps")
    return [
        "The arms from *bank* to *no memory* were trained alike: the same demonstrations, the same steps, the same",
        "frozen perception, from the same start. *`memory`*, which was shipped when this was measured, was trained",
        "longer and on more demonstrations, and its perception learned too; `engram` has taken its place. The",
        "ablations are `memory` with its memory tampered with at run time, a state that training never saw. Recipe and",
        "start were found with a bank; no other memory had a recipe of its own",
        "([decision 16](decisions/0016-the-shipped-checkpoints.md)). Chance is not measured: it follows from the",
        "number of alternatives.",
        "",
        *table(head, rows),
    ]


def memory_per_task(results: Results) -> list[str]:
    """Successes of every arm on every memory task."""
    rows_of: Mapping[str, Mapping[str, Any]] = results["memory_tasks"].content["rows"]
    arms = [arm for arm in (*ARMS, *ABLATIONS) if arm in rows_of]
    tasks = [task for task in rows_of["ours-zeroed"]]
    rows = [
        [f"`{task}`", *(f"{rows_of[arm][task]['successes']} / {rows_of[arm][task]['n']}" for arm in arms)]
        for task in tasks
    ]
    names = {
        **ARMS,
        "ours-zeroed": "emptied",
        "ours-swapped": "swapped",
        "ours-noise": "noise",
        "oracle_state": "expert",
    }
    return ["Successes and episodes:", "", *table(("task", *(names[arm] for arm in arms)), rows)]


def claims(results: Results) -> list[str]:
    """What is claimed of the policy ``engram``, and whether it holds."""
    result = results["policy_claims"]
    named = {
        "tabletop_as_trained": "tabletop tasks",
        "tabletop_minus_reference": "tabletop tasks, minus `base`",
        "memory_as_trained": "memory tasks",
        "memory_tasks_solved": "memory tasks with at least 90 % success",
        "out_of_view_as_trained": "targets out of view",
        "tabletop_pushed": "pushed objects",
        "tabletop_reference_pushed": "pushed objects, `base`",
        **{f"memory_{key}": f"memory tasks: {words}" for key, words in CONDITIONS.items()},
    }
    rows = []
    for key, words in named.items():
        if key in result.figures:
            row = result.figure(key)
            goal = row.get("target")
            shown = row if not isinstance(goal, float) else dict(row) | {"target": f"{100 * goal:g} %"}
            value = str(row["value"]) if key == "memory_tasks_solved" else percent(row)
            rows.append([words, value, samples(row), target(shown)])
    return [
        "The policy `engram` with its own settings. From *held-out wordings* on it meets what its training never had;",
        "n counts the episodes of all tasks together.",
        "",
        *table(("claim", "success", "n", "target"), rows),
    ]


def spoilt(results: Results) -> list[str]:
    """The policy ``engram`` with each of its two memories spoilt, on every task."""
    rows_of: Mapping[str, Mapping[str, Any]] = results["policy_claims"].content["rows"]
    named = {
        "as trained": "as trained",
        "zeroed": "emptied (`zeroed`)",
        "swapped": "of the previous episode (`swapped`)",
        "noise": "noise (`noise`)",
        "no_context": "no `memory/context` (`no_context`)",
    }
    arms = [arm for arm in named if arm in rows_of]
    rows = []
    for name in ("tabletop", "memory", "unseen"):
        for task in SUITES[name]:
            cells = [rows_of[arm].get(task) for arm in arms]
            rows.append([f"`{task}`", *(f"{cell['successes']} / {cell['n']}" if cell else "–" for cell in cells)])
    return [
        "Successes and episodes of `engram`. What remembers the episode is emptied at every step, or exchanged for",
        "that of the episode before, or for noise; in the last column nothing is told of the scene graph.",
        "",
        *table(("task", *(named[arm] for arm in arms)), rows),
    ]


def unseen(results: Results) -> list[str]:
    """The policy that acts on the scene graph while both cameras are covered, and what looking up is worth."""
    given, without = (results[name].content["per_task"] for name in ("eval_engram", "eval_engram_no_context"))
    tasks = SUITES["unseen"]
    return [
        "The policy `engram` touches a thing, or puts a cube on it, that it saw before and that is hidden now. Its",
        "color and kind are drawn from the seed. Only the scene graph, through `memory/context`, knows where it is:",
        "guessing one of three succeeds in a third. Without it the policy does worse than that.",
        "",
        *before_relight(results["eval_engram"]),
        *table(
            ("policy `engram`", "with `memory/context`", "without it (`--ablation no_context`)", "n"),
            [[f"`{task}`", percent(given[task]), percent(without[task]), str(given[task]["n"])] for task in tasks],
        ),
        *looked_up(results["lookup"]),
    ]


def looked_up(result: ResultFile) -> list[str]:
    """The ceiling of the tasks whose target no camera sees: a scripted policy that looks the target up."""
    rows = []
    for name in (name for name in result.figures if name.startswith("lookup_known_")):
        task, alternatives = name.removeprefix("lookup_known_").rsplit("_", 1)
        known, success = result.figure(name), result.figure(name.replace("known", "success"))
        words = result.figure(f"lookup_words_{task}")
        chance = f"{100 / int(alternatives):.1f} %"
        shares = [percent(row) for row in (words, known, success)]
        rows.append([f"`{task}`", alternatives, *shares, samples(known), chance])
    head = ("task", "alternatives", "words fit best", "looked up within 2 cm", "success", "n", "chance")
    return [
        "How good could looking up be? A scripted policy without images takes the object in `memory/context` whose",
        "embedding is most like the instruction's, and moves to its place. *Alternatives*: things in the scene.",
        "*Words fit",
        "best*: the share of all sentences, held-out wordings included, that resemble the name of the right object",
        "more",
        "than that of any other. *Looked up within 2 cm*: the object taken lies where the target is.",
        "",
        *table(head, rows),
    ]
