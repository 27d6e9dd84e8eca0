"""The tables of the results page that are about judging what a robot did, and learning from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from engram.benchmarks.gate_peers import CASES, ERROR, PACKAGE, PAIRS
from engram.benchmarks.promise_story import WINDOW
from engram.benchmarks.report import slug
from engram.benchmarks.result_files import ResultFile, number, percent, table, target
from engram.validation.gate import NOT_SHOWN, PROMOTE, REJECT

Results = Mapping[str, ResultFile]

VERDICT_ROWS = {
    "verdict_agreement": "right, where it was told",
    "verdict_false_success": "confirmed, though not done",
    "verdict_missed_success": "done, but not confirmed",
    "verdict_cannot_tell": "not told",
    "verdict_agreement_as_trained": "right: the policy as trained",
    "verdict_agreement_turned_15_degrees": "right: its actions turned by 15 degrees",
    "verdict_agreement_another_thing": "right: it did what the words do not say",
}


def verdicts(results: Results) -> list[str]:
    """The memory's verdict of a goal beside the simulator's."""
    result = results["verdicts"]
    rows = [
        [words, percent(result.figure(name)), str(result.figure(name).get("n", "–")), target(result.figure(name))]
        for name, words in VERDICT_ROWS.items()
    ]
    for name, row in result.figures.items():
        if name not in VERDICT_ROWS:
            task = name.removeprefix("verdict_agreement_")
            rows.append([f"right: `{task}`", percent(row), str(row["n"]), target(row)])
    return [
        "The memory judges whether the words of a goal are carried out; no simulator ends an episode, it only says "
        "whether the verdict was right. "
        "[How it does so](explanation/verdicts.md).",
        "",
        *table(("verdicts", "share", "n", "target"), rows),
    ]


def twin(results: Results) -> list[str]:
    """Goals that a robot's nodes end by the memory's verdict."""
    words = {
        "goals_succeeded": "goals that ended as succeeded",
        "answers_late": "answers of the policy that came late",
        "verdict_right": "goals whose end was right",
        "false_success": "succeeded, though not done",
        "goal_p50_s": "median duration of a success, s",
    }
    result, rows = results["twin"], []
    for name, said in words.items():
        arms = [result.figure(f"{arm}_{name}") for arm in ("twin", "twin_without_wait")]
        cells = [f"{number(row) if name.endswith('_s') else percent(row)} (n {row['n']})" for row in arms]
        rows.append([said, *cells])
    return [
        "The nodes of `engram up robot`, in real time. A simulation plays the hardware behind ros2_control's topics. "
        "The memory ends the goals; the simulator says whether that was right. "
        "[Late answers](how-to/tune_action_chunks.md) says what `answer_wait` of the safety node is.",
        "",
        *table(("figure", "as shipped", "`answer_wait: 0`"), rows),
    ]


ARMS = {
    "_noisy_cloning": "with noise",
    "_corrections": "by corrections of its motions",
    "_helped_cloning": "with noise, helped",
    "_replays": "by imitating replays",
    "_advantage_cloning": "by `advantage_cloning`",
    "_edit_actor": "by `edit_actor`",
    "_best_of_n": "by `best_of_n`",
    "_noise_steering": "by `noise_steering`",
    "_soft_actor_critic": "by `soft_actor_critic`",
}


def improvement(results: Results) -> list[str]:
    """Success of a policy that practises under a gap, by arm and number of episodes."""
    return [
        "`base` practises on a *twin*, the simulated tabletop with one thing changed: on `turned` the executed "
        "translation of the tool is the commanded one, rotated by 15 degrees about the vertical axis; on `late` "
        "commands are executed two control steps late, and in a fifth of the steps no new pictures come "
        "([all](how-to/practise.md#on-a-twin)). It imitates what the memory confirmed. "
        "[Let a policy practise](how-to/practise.md). Interquartile means over the seeds, measured without noise on "
        "other scenes. Measured while `base` executed four actions of a chunk before it replanned; it executes two "
        "since, and does otherwise ([decision 39](decisions/0039-what-imitation-unlearns.md)). "
        + _false_successes(results["improvement"]),
        "",
        *_practised(results["improvement"]),
    ]


def corrections(results: Results) -> list[str]:
    """Success of a policy that practises by corrections of all motions."""
    result = results["corrections"]
    return [
        "`base` searches for a correction of all of its motions; after every 50 episodes one that is surely better "
        "than none becomes part of its weights. [How](how-to/practise.md#by-corrections-of-all-motions). Measured on "
        "other scenes. The search was designed while looking at the first of the two practices of `stack` "
        "([decision 38](decisions/0038-practice-by-corrections.md)).",
        "",
        *_practised(result),
    ]


def critics(results: Results) -> list[str]:
    """Success of a policy that practises with critics."""
    result = results["critics"]
    return [
        "`base` practises with noise, and critics judge what was done in successes and failures "
        "([how](how-to/practise.md#with-critics)). A draw of the noise lasts for a whole episode. Measured without "
        "noise on other scenes. Practices differ: what five critics agree on after a hundred episodes is sometimes the "
        "gap, and sometimes little. Critics and noise were designed while looking at other practices on this twin "
        "([decision 47](decisions/0047-critics-that-share-no-episode.md)). " + _false_successes(result),
        "",
        *_practised(result),
    ]


def shifts(results: Results) -> list[str]:
    """The same where a camera was moved, or the robot stands turned."""
    return _searched(
        results["shifts"],
        "The same search, since a correction can also shift motions "
        "([decision 42](decisions/0042-a-shift-mends-a-camera.md)). "
        "On `front_moved` the front camera stands 3 cm aside and is turned by 3 degrees; on `mounted` the robot's base "
        "is turned by 5 degrees. The shift was designed while looking at these two.",
    )


def other_gaps(results: Results) -> list[str]:
    """The same on robots that the search was not designed on."""
    return _searched(
        results["gaps"],
        "The same search on robots that it was not designed on, one practice each. On `turned_scaled` the executed "
        "translation is the commanded one, rotated by 10 degrees the other way and 1.4 times as long; on `worn` it is "
        "shorter by 0.12 of the longest one of a control step, friction is halved and masses are doubled; on "
        "`wrist_moved` the wrist camera sits 6 mm aside. Where the success stays, no "
        "correction was surely better than none. A second correction can make worse what the first one mended.",
    )


def continual(results: Results) -> list[str]:
    """What is kept of each task while others are practised: the matrix of practices and tasks."""
    result = results["continual"]
    config, found = result.content["config"], result.figures
    tasks = [name.removeprefix("continual_before_") for name in found if name.startswith("continual_before_")]
    rows = [
        [f"`{stage}`" if stage in tasks else "nothing yet"]
        + [percent(found[f"continual_{stage}_{task}"], digits=0) for task in tasks]
        for stage in ("before", *config["tasks"])
    ]
    learnt, other = (found[f"continual_{kind}_lost_most"] for kind in ("learnt", "other"))
    told = [
        f"{one['task']}: "
        + (f"{len(one['corrections'])} corrections" if len(one["corrections"]) != 1 else "a correction")
        for one in result.content["practices"]
    ]
    return [
        f"`{config['policy']}` practises {len(config['tasks'])} tasks one after the other on `{config['on']}`, "
        f"{config['episodes']} episodes each; what is found becomes part of the weights ({'; '.join(told)}). "
        f"Success at all of its tasks on that twin, {learnt['n']} episodes each. The largest loss of a task that was "
        f"learnt before, while another one was practised: {100 * learnt['value']:.0f} points; of one that was not: "
        f"{100 * other['value']:.0f} points (target of both {learnt['target']}). One seed.",
        "",
        *table(("after practice of", *(f"`{task}`" for task in tasks)), rows),
    ]


def memory_practice(results: Results) -> list[str]:
    """What memory is worth to a policy that practises."""
    result = results["memory_practice"]
    found: dict[str, dict[str, Mapping[str, object]]] = {}
    for row in result.figures.values():
        found.setdefault(row["cell"], {})[row["arm"]] = row
    practices = result.content["config"]["seeds"]
    arms = list(dict.fromkeys(arm for cell in found.values() for arm in cell))
    rows = [[arm, *(percent(cell[arm]) if arm in cell else "–" for cell in found.values())] for arm in arms]
    return [
        "`engram` searches in 50 episodes for a correction of its motions, and what was found becomes part of its "
        "weights. The simulator tells what went well (oracle), as no relation of the scene graph says it of these "
        "tasks. *Learner without*: the same correction, learnt in "
        "the same episodes without what the policy read of that memory. *Policy without*: what was learnt with both "
        "acts without it. Measured on other scenes, "
        f"{'one practice' if practices == 1 else f'{practices} practices'} each.",
        "",
        *table(("", *(f"`{cell}`" for cell in found)), rows),
    ]


def classifier(results: Results) -> list[str]:
    """How right success classifiers are, and what practice by their word came to."""
    result = results["classifier"]
    figures, settings = result.figures, result.content["settings"]
    tasks = [*dict.fromkeys(row["task"] for row in figures.values() if "task" in row)]
    names = {
        "right, where it was told": "right",
        "confirmed, though not done": "false_success",
        "done, but denied": "missed",
        "not told": "not_told",
    }
    first, other = settings["judged_on"]
    robots = {"taught": "the same robots", first: f"`{first}`", other: f"another robot, `{other}`"}
    rows = [
        [f"`{task}`", words, *(_told(figures, f"{name}_{task}_{robot}") for name in names.values())]
        for task in tasks
        for robot, words in robots.items()
    ]
    ways = {"rank": "rank", "forwards": "forwards", "backwards": "backwards", "still": "standing still"}
    ends = {"wrong_words": "ends at, under other words", "missed": "ends at, missed"}
    ways |= {name: words for name, words in ends.items() if any(f"progress_{name}_{task}" in figures for task in tasks)}
    progress = [[f"`{task}`", *(_plain(figures.get(f"progress_{name}_{task}")) for name in ways)] for task in tasks]
    told = [
        "A [success classifier](explanation/verdicts.md#what-it-cannot-judge-a-success-classifier) for each of "
        f"{len(tasks)} tasks of which the memory cannot tell. It learnt from {settings['labelled']} goals of "
        "`engram` that the simulator judged in place of a person, on the gaps "
        f"{_and(settings['taught_on'])}. *The same robots*: cross-validated on these goals, each in a scene of "
        "its own. Else other scenes. The simulator scores. Targets: right at least 97 %, confirmed though not done at "
        "most 1 %.",
        "",
        *table(("task", "judged on", *names), rows),
        "",
        "Progress, on goals that were reached. *Rank*: Spearman's correlation with the share of the steps (target 0.9)."
        " The others are what it gains over a whole goal: as it was, with its steps backwards, and with one step shown "
        "again and again. It should gain nothing standing still, and lose backwards: in part it only tells the time.",
        "",
        *table(("task", *ways.values()), progress),
    ]
    if "practised_after_0" in figures:
        task, gap = settings["practised"]
        before, after = figures["practised_after_0"], figures[f"practised_after_{settings['search']}"]
        wrong = figures["practised_wrongly_confirmed"]
        told += [
            "",
            f"`engram` practised {task} on `{gap}` by the classifier's word alone, {settings['search']} episodes of a "
            f"search: {percent(before)} before, {percent(after)} after (n {after['n']}, other scenes, the simulator "
            f"scores). Of what the classifier confirmed, {percent(wrong)} was no success (n {wrong['n']}).",
        ]
    return told


def _share(row: Mapping[str, Any]) -> str:
    """Return a rate with its interval and of how many it is; a dash where there were none."""
    return f"{percent(row)} (n {row['n']})" if row["n"] else "–"


def _told(figures: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Return the rate ``name`` as :func:`_share` does; it is missing where there was nothing to count."""
    if name in figures:
        return _share(figures[name])
    return "nothing was told" if name.startswith("right") else "–"


def _plain(row: Mapping[str, Any] | None) -> str:
    """Return a mean with its interval; a dash where there is none."""
    if row is None:
        return "–"
    low, high = row["interval"]
    return f"{row['value']:.2f} [{low:.2f}, {high:.2f}]"


def _and(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _searched(result: ResultFile, words: str) -> list[str]:
    judged = "The memory's verdicts alone say what went well. The simulator scores, on other scenes."
    return [f"{words} {judged} {_false_successes(result)}", "", *_practised(result)]


def demo(results: Results) -> list[str]:
    """What the demo of learning came to."""
    result = results["learning_demo"]
    config, minutes = result.content["config"], result.figure("learning_demo_minutes")
    rows = [
        [part, percent(result.figure(f"learning_demo_{part}")), str(result.figure(f"learning_demo_{part}")["n"])]
        for part in ("before", "after")
    ]
    return [
        "`LEARNING=1 make demo` ([how](tutorials/first_run.md#5-watch-it-learn)): all nodes in lock-step; goals of "
        f"`{config['task']}` on a robot with the gap `{config['on']}`, which nothing tells the nodes. It works, the "
        "gate finds the gap in its record, the policy practises in a simulation that has it, and what the gate lets "
        "drive gets the same goals in the same scenes. The simulator judges, the goals as well as the practice and the "
        "gate's trials. From the first goal until it drove: "
        f"{minutes['value']:g} minutes on two "
        f"cores (target {minutes['target']}). One run, and the robot is a simulation, too.",
        "",
        *table(("goals", "reached, by the simulator", "n"), rows),
    ]


def helped(results: Results) -> list[str]:
    """The same with an expert that takes over as a person would."""
    result = results["helped"]
    share = percent(result.figure("improvement_helped_steps"))
    return [
        "A scripted expert stands for a person: it takes over from a policy that does not get done, and drove "
        f"{share} of the control steps of the helped practice. It knows the simulator's state (oracle). "
        "[Practice that is helped](how-to/practise.md#practice-that-is-helped). Measured without help, without noise, "
        "on other scenes. " + _false_successes(result),
        "",
        *_practised(result),
    ]


def new_task(results: Results) -> list[str]:
    """What demonstrations and practice teach a policy of tasks that it never saw."""
    result = results["new_task"]
    config, found = result.content["config"], result.figures
    tasks, rows = config["tasks"], []
    few, practised = config["demonstrations"][0], (config["episodes"] // 2, config["episodes"])
    stages = {"before": "never shown"}
    stages |= {f"of_{count}": f"trained on {count} demonstrations" for count in config["demonstrations"]}
    lit = f"of_{few}_in_varied_light"
    stages |= {lit: f"trained on {few}, their light varied"}
    stages |= {f"{name}_dim": f"{words}; in dim light" for name, words in stages.items() if name != "before"}
    kinds = {
        "corrected": "practice by corrections",
        "imitated": "practice by imitation",
        "helped": "practice by imitation, helped",
        "replayed": "practice with replays",
        "retrained": "replays, and trained anew",
    }
    for arm in config["arms"]:
        begins = f"on {few} demonstrations, then {{}} episodes of {kinds[arm]}"
        stages |= {f"{arm}_after_{at}": begins.format(at) for at in practised}
    for name, words in stages.items():
        rates = [found[f"new_task_{task}_{name}"] for task in tasks]
        worst_first = sorted(rates, key=lambda rate: rate.get("met") is not False)
        rows.append([words, *map(percent, rates), target(worst_first[0])])
    n = found[f"new_task_{tasks[0]}_before"]["n"]
    says = {
        "corrected": "Practice by corrections searches for one of all motions. ",
        "imitated": "Practice by imitation imitates noisy successes. ",
        "replayed": "With replays ([how](how-to/practise.md#from-ten-demonstrations)) the demonstrations are carried "
        "out in other scenes, moved to where the memory sees the things of the words, and what went well is learnt at "
        "once. ",
        "retrained": "Trained anew: after every 50 replays, on the demonstrations and all replays so far. ",
    }
    helps = "An expert that helps knows the simulator's state (oracle) and drives a tenth of the steps at most. "
    false = [row for name, row in found.items() if name.endswith("_false_successes")]
    wrong, told = (sum(row["value"] * row["n"] for row in false), sum(row["n"] for row in false))
    missed = {
        task: [row for name, row in found.items() if name.startswith(f"new_task_{task}_") and "_missed_" in name]
        for task in tasks
    }
    unseen = ", ".join(
        f"{sum(row['value'] * row['n'] for row in rows_of):.0f} of {sum(row['n'] for row in rows_of)} of `{task}`"
        for task, rows_of in missed.items()
    )
    return [
        f"`{config['policy']}` is trained on demonstrations of one task that it never saw, and practises it "
        "([how](tutorials/your_task.md#4-record-train-evaluate)). *lift*: pick the named cube up. *fetch*: put it on a "
        f"mark that lies between it and the robot. {''.join(says.get(arm, '') for arm in config['arms'])}"
        f"{helps if 'helped' in config['arms'] else ''}The memory judges the "
        f"practice: {wrong:.0f} of the {told} successes that it told were false, and it missed {unseen}. "
        f"Other scenes, n = {n}, one seed. *Dim light*: the "
        "gap `dim`, which no demonstration shows. *Light varied*: trained with `--model brightness_jitter "
        f"{config['jitter']:g}`, which makes every picture darker or brighter by up to so much; the default is 0.1.",
        "",
        *table(("policy", *(f"`{task}`" for task in tasks), "target"), rows),
    ]


def replays(results: Results) -> list[str]:
    """How often demonstrations succeed that are replayed on robots that differ from the one that showed them."""
    result = results["replays"]
    config, found = result.content["config"], result.figures
    tasks = config["tasks"]
    rows = [[f"`{on}`", *(percent(found[f"replays_{task}_on_{on}"]) for task in tasks)] for on in config["on"]]
    n = found[f"replays_{tasks[0]}_on_{config['on'][0]}"]["n"]
    wrong = " and ".join(
        f"{word} {round(row['value'] * row['n'])} of {row['n']}"
        for word, row in (
            ("of the successes that it told it was wrong in", found["replays_false_successes"]),
            ("of those that there were it missed", found["replays_missed_successes"]),
        )
    )
    return [
        f"Scripted experts show each task {config['demonstrations']} times on the usual tabletop (they know the "
        "simulator's state: oracle). The demonstrations are replayed on "
        "[robots that differ](how-to/practise.md#on-a-twin), moved to where the memory sees the things of the words "
        "([how](how-to/practise.md#from-ten-demonstrations)). No policy drives, and nothing is learnt. The simulator "
        f"scores; the memory judged, too: {wrong}. n = {n} a task and robot.",
        "",
        *table(("robot", *(f"`{task}`" for task in tasks)), rows),
    ]


def replay_practice(results: Results) -> list[str]:
    """What a policy learns of such replays, where motions differ."""
    result = results["replay_practice"]
    return [
        "`base` imitates such replays, one practice each. Where motions differ, "
        "[a correction](#practice-by-corrections) of all of them teaches more in as many episodes. The memory's "
        "verdicts alone say what is learnt. The simulator scores, without replays, on other scenes. "
        + _false_successes(result),
        "",
        *_practised(result),
    ]


def _false_successes(result: ResultFile) -> str:
    false = result.figure("improvement_false_successes_learnt_from")
    return f"Of what was learnt from, {percent(false)} was no success (n {false.get('n', '–')})."


def _practised(result: ResultFile) -> list[str]:
    """Return the table of a curve for each twin and arm."""
    found: dict[tuple[str, str], dict[int, Mapping[str, object]]] = {}
    for name, row in result.figures.items():
        if "_after_" in name:
            cell, _, after = name.removeprefix("improvement_").rpartition("_after_")
            kind = next((kind for kind in ARMS if cell.endswith(kind)), "_cloning")
            cell, arm = cell.removesuffix(kind), ARMS.get(kind, "without noise")
            found.setdefault((cell, arm), {})[int(after)] = row
    counts = sorted({at for curve in found.values() for at in curve})
    rows = [
        [cell.replace("_", " "), arm, *[percent(curve[at]) if at in curve else "–" for at in counts]]
        for (cell, arm), curve in found.items()
    ]
    return table(("twin", "practised", *[f"after {at} episodes" for at in counts]), rows)


TOLD = ("rests", "candidate", "verdict", "drives", "nothing promoted", "knocked", "rolled back", "not rolled back",
        "refused", "taken")  # fmt: skip
"""What is told of the promise; the rest says only what the benchmark did."""


PICTURE = "img/promise.svg"
"""The promise as a picture, beside the page."""


def promise(results: Results) -> list[str]:
    """What happened to a robot that learns behind the gate."""
    result = results["promise"]
    config, rows = result.content["config"], []
    for name, row in result.figures.items():
        if name.startswith("promise_success_"):
            task, _, version = name.removeprefix("promise_success_").removesuffix("_version").rpartition("_")
            rows.append([f"`{task}`", version, percent(row), str(row["n"])])
    happened = [
        [f"{one['at_s'] / 60:.0f}", str(one["goals"]), one["what"], one["version"], one["text"].replace("|", "/")]
        for one in result.content["happenings"]
        if one["what"] in TOLD
    ]
    names = ("verdict_right", "promoted_by_the_gate", "goals_until_rolled_back")
    right, promoted, back = (result.figure(f"promise_{name}") for name in names)
    gone = f"after {back['value']:g} goals" if back["met"] else "not within the goals that it got"
    return [
        f"All nodes of a robot run in real time; a simulation plays its hardware, `{config['on']}` of "
        "[the gaps](how-to/validate.md#a-robot-that-differs-from-the-simulation). The memory alone judges the robot's "
        f"goals: {percent(right)} of its verdicts were right (n {right['n']}). The gate finds the gap in the robot's "
        "record, and searches for corrections in a simulation that has it. There the simulator judges (oracle), the "
        "practice as well as the trials of a candidate, which drives only after the gate's verdict. "
        f"Then the robot is knocked (`{config['knocked']}`): the learner is to go back to the weights of "
        f"before, and did so {gone}. At the end a ruined candidate is offered. "
        f"One run; candidates that the gate promoted: {promoted['value']:g} (target {promoted['target']}). "
        "[How](how-to/practise.md#in-a-simulation-that-follows-the-robot).",
        "",
        f"![The success of the last {WINDOW} goals, what drove, and what happened]({PICTURE})",
        "",
        *table(("goals of", "version that drove", "reached, by the simulator", "n"), rows),
        "",
        *table(("minute", "goals before", "what", "version", ""), happened),
    ]


LESS_FAR = "one_task_never_done_but_less_far_same_luck"


def gate(results: Results) -> list[str]:
    """Error rates and length of the gate's test, by candidate."""
    found = results["gate"].figures
    rows = []
    for name in found:
        if name.startswith("promoted_"):
            case = name.removeprefix("promoted_")
            length = found.get(f"length_{case}")
            rows.append(
                [
                    case.replace("_", " ").replace(" same luck", ", same luck"),
                    percent(found[name]),
                    percent(found[f"rejected_{case}"]),
                    number(found[f"pairs_{case}"]),
                    "–" if length is None else number(length),
                ]
            )
    lengths = [row for name, row in found.items() if name.startswith("length_")]
    missed = sum(row["met"] is False for row in lengths)
    n = next(iter(found.values()))["n"]
    alone = percent(found[f"successes_alone_promote_{LESS_FAR}"])
    return [
        "The gate decides whether new weights, the *candidate*, may replace those that drive. Both run the same "
        "simulated scene: a *pair*. Here the successes and the progress on six tasks are drawn at random, "
        f"{n} runs of each candidate. What is neither promoted nor rejected within the budget is *not shown*. If only "
        "successes were tested, a candidate that merely gets less far on a task that neither ever solves would be "
        f"promoted in {alone} of the runs. *Same luck*: the scene "
        "alone decides, as for two policies that hardly differ; else their successes are independent. *Length*: "
        "pairs of "
        "episodes, as a share of those of a test of fixed length with the same error rates, which knows the variance "
        "beforehand "
        f"(target 0.5; {missed} of {len(lengths)} miss it). "
        "[Validate a candidate](how-to/validate.md).",
        "",
        *table(("candidate", "promoted", "rejected", "pairs", "length"), rows),
    ]


KINDS = {
    "trivial": "stands still, or always gives the mean action.",
    "no number": "a weight is NaN or infinite.",
    "swapped heads": "outputs or cameras exchanged.",
    "drift": "a constant motion is added.",
    "depends on the physics": "motions are scaled.",
    "one task only": "one task's words are taken for another's.",
    "safety only": "the tool shakes and mostly succeeds as before, but the safety filter has to intervene more.",
    "damaged": "weights are noisy or shrunk.",
    "as good": "hidden units in another order, or very little noise.",
    "better": (
        "the worn `base` that drives has noise in its weights, and the candidate the same noise, but less of it. They "
        "are no earlier and later checkpoints of one training."
    ),
}


def gate_policies(results: Results) -> list[str]:
    """What the gate decided of policies whose quality is known."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in results["gate_policies"].content["candidates"]:
        kinds.setdefault(row["kind"], []).append(row)
    rows = []
    for kind, those in kinds.items():
        counts = [str(sum(row["decision"] == decision for row in those)) for decision in (PROMOTE, REJECT, NOT_SHOWN)]
        pairs = sorted(row["pairs"] for row in those)
        rows.append([kind, those[0]["wanted"], str(len(those)), *counts, str(pairs[len(pairs) // 2])])
        if kind == "safety only" and (row := results["gate_policies"].figure("safety_only_rejected_for_safety")):
            rows.append([f"{kind}: for safety", REJECT, str(row["n"]), "–", str(row["value"]), "–", "–"])
    tried = len(results["gate_policies"].content["candidates"])
    return [
        f"Candidates made from `base`, on the six tabletop tasks; {tried} of the 80 that were planned were tried. "
        "`base` drives, or, where a better one is offered, a worn `base`. Pairs of episodes until the decision, their "
        f"median. {' '.join(f'*{kind.capitalize()}*: {KINDS[kind]}' for kind in kinds)}",
        "",
        *table(("candidates", "wanted", "n", "promoted", "rejected", "not shown", "pairs"), rows),
    ]


PEERS = ("Engram", "STEP", "SAVI")


def gate_peers(results: Results) -> list[str]:
    """The gate's test of one task beside published tests."""
    result = results["gate_peers"]
    rows = []
    for case in CASES:
        cells = []
        for peer in PEERS:
            name = f"{peer.lower()}_{slug(case)}"
            cells.append(f"{percent(result.figure(f'shown_{name}'))}, {number(result.figure(f'pairs_{name}'))} pairs")
        rows.append([case, *cells])
    n = result.figure(f"shown_engram_{slug(next(iter(CASES)))}")["n"]
    return [
        f"Is it shown that a candidate is worse on one task, within {PAIRS} pairs and at an error rate of {ERROR}? {n} "
        "runs each, mean number of pairs. STEP and SAVI compare two policies whose successes are independent "
        f"([{PACKAGE}](https://pypi.org/project/{PACKAGE}/), as published). The gate runs both in the same scenes and "
        "tests the difference: *same luck* is what it is made for. Where successes are independent and the "
        "difference is small, STEP needs fewer pairs.",
        "",
        *table(("candidate", *PEERS), rows),
    ]


KILLED = {"gate": "the gate", "worker": "a worker of it", "library": "the learner, while it changes its versions"}


def gate_kills(results: Results) -> list[str]:
    """What kill -9 leaves of verdicts, results and stages."""
    result = results["gate_kills"]
    wrong, orphans = result.figure("gate_kills_wrong"), result.figure("gate_kills_orphans")
    rows = [[words, str(result.figure(f"gate_kills_of_the_{who}")["value"])] for who, words in KILLED.items()]
    return [
        "The process is killed at a random instant and started again. A verdict and its results then have to be those "
        "of a run that nobody killed; the learner's versions have to be as after the last change that was told to be "
        f"durable, or after the next. Lost, doubled or wrong after {wrong['n']} kills: {number(wrong)} "
        f"(target {wrong['target']}). Validations that came to their end: "
        f"{number(result.figure('gate_kills_verdicts'))}. Kills of the gate that left a worker running: "
        f"{number(orphans)} of {orphans['n']}.",
        "",
        *table(("killed", "kills"), rows),
    ]


def worst_case(results: Results) -> list[str]:
    """Which planted weaknesses the search finds."""
    result, rows = results["worst_case"], []
    for case in result.content["cases"]:
        planted = " and ".join(f"{name}, {low:g} to {high:g}" for name, low, high in case["planted"])
        rows.append([planted, *("found" if case[way] else "missed" for way in ("search", "random"))])
    search, chance = (result.figure(f"worst_case_found_by_{way}") for way in ("search", "random"))
    config = result.content["config"]
    return [
        f"Each policy drives as `base` does on `{config['task']}`, but stands still where the robot deviates in one "
        "way, or in two ways together, by an amount in the range given (as a share of that deviation's whole range). "
        "*Search*: "
        "[`--worst-case`](how-to/validate.md#where-it-is-weakest), "
        f"{config['episodes']} episodes. *At random*: as many episodes at places drawn at random, confirmed the same "
        f"way. Found by the search: {percent(search)} (target {target(search)}); at random: {percent(chance)} "
        f"(n {search['n']}).",
        "",
        *table(("stands still at", "search", "at random"), rows),
    ]


IDENTIFIED = {
    "yaw_deg": "direction of motions, deg",
    "gain": "scale of motions",
    "deadband": "deadband of motions",
    "latency_steps": "latency, control steps",
    "front_m": "front camera, m",
    "front_yaw_deg": "turn of the front camera, deg",
    "wrist_m": "wrist camera, m",
    "mounted_deg": "turn of the robot on its place, deg",
    "dropped": "share of lost pictures",
    "damping": "damping of the arm",
    "brightness": "brightness of the lamps",
    "camera_noise": "noise of pixels, of 1",
}


def identification(results: Results) -> list[str]:
    """How far off a gap is that a record tells, and how policies rank in the simulation that has it."""
    result, rows = results["identification"], []
    for name, words in IDENTIFIED.items():
        median, most = (result.figure(f"identification_{name}_{what}_error") for what in ("median", "largest"))
        if most:  # measured since
            rows.append([words, number(median), number(most), target(most)])
    before, after = (result.figure(f"rank_correlation_{when}") for when in ("before", "after"))
    robots = result.figure("identification_gain_largest_error")["n"]
    episodes = result.content["policies"][0]["twin"]["n"]
    return [
        f"Errors of `engram identify` on {robots} simulated robots whose gaps are known. Target of the largest error: "
        "less than the gate varies its robots. "
        "[How it is found](how-to/validate.md#a-robot-that-differs-from-the-simulation).",
        "",
        *table(("value", "median error", "largest error", "target"), rows),
        "",
        f"On one of them, {before['n']} policies of mixed quality were tried, {episodes} episodes each: on the robot "
        "itself, and in the gate's simulation without and with the gap that was found. All of it is simulated. "
        f"Spearman's rank correlation with the robot was {_with_interval(before)} without the gap and "
        f"{_with_interval(after)} with it (target {after['target']}, {'met' if after['met'] else 'missed'}). "
        "So few episodes cannot tell more: between two robots on which each policy succeeds equally often, the luck of "
        f"the scenes would leave {_with_interval(_luck(result.content['policies']))}.",
    ]


def _luck(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rank correlation of two sets of trials of the same policies, if both places were alike."""
    places = [[row[place] for row in rows] for place in ("twin", "with its gap")]
    n = places[0][0]["n"]
    rates = np.mean([[(one["successes"] + 0.5) / (n + 1) for one in place] for place in places], axis=0)
    rng = np.random.default_rng(0)
    drawn = [spearmanr(*rng.binomial(n, rates, (2, len(rates)))).statistic for _ in range(2000)]
    return {"value": float(np.mean(drawn)), "interval": np.percentile(drawn, (2.5, 97.5)).tolist()}


def _with_interval(row: Mapping[str, Any]) -> str:
    """Return a figure with its interval, in words."""
    low, high = row["interval"]
    return f"{row['value']:.2f} [{low:.2f}, {high:.2f}]"
