"""Write docs/results.md, and the table of results in README.md, from ``benchmarks/results/*.json``.

    python -m engram.benchmarks.results_page

No number of the documentation is typed by hand. ``tests/docs/test_results.py`` compares both with what this writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engram.benchmarks import results_learning as learning
from engram.benchmarks import results_memory as memory
from engram.benchmarks import results_policies as policies
from engram.benchmarks import results_speed as speed
from engram.benchmarks.promise_story import Happening, Story, picture
from engram.benchmarks.result_files import ResultFile, load_results, number, percent, samples, table

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "results.md"
README = REPOSITORY / "README.md"
BEGIN, END = "<!-- results: written by python -m engram.benchmarks.results_page -->", "<!-- end of results -->"

EXPERT = "scripted expert that sees the simulator's state"
MOVED = "pick_place_on_front_moved"
PRACTISED = "a cube into the bin: camera moved, then 100 episodes of practice (the method was designed on this case)"
ALIKE = "twelve memory tasks, memories trained alike"

NOTES = {
    "Judging and learning": (
        "This chapter was measured with `base` and `engram` as they were before they were taught",
        "[other light](#other-light): today's weights give other figures.",
        "",
    )
}
"""What is said at the head of a chapter."""

Results = Mapping[str, ResultFile]
Section = Callable[[Results], list[str]]

CHAPTERS: dict[str, dict[str, tuple[Section, tuple[str, ...]]]] = {
    "Policies": {
        "Six tabletop tasks": (policies.tabletop, ("eval_base", "eval_base_held_out", "eval_experts")),
        "Scripted experts on the SO-101": (
            lambda results: policies.evaluation(results["eval_experts_so101"]),
            ("eval_experts_so101",),
        ),
        "Another instruction on the same scene": (policies.swapped_words, ("eval_base_swap", "eval_engram_swap")),
        "Other light": (policies.other_light, ("light",)),
        "Replanning and disturbances": (policies.decision_rates, ("chunking",)),
        "One policy for all tasks": (
            policies.every_task,
            ("eval_engram", "eval_engram_zeroed", "eval_engram_no_context"),
        ),
        "Claims of the one policy": (policies.claims, ("policy_claims",)),
        "With a memory spoilt": (policies.spoilt, ("policy_claims",)),
        "Pushed objects": (policies.pushed, ("eval_engram_push",)),
        "A target that no camera sees": (policies.unseen, ("eval_engram", "eval_engram_no_context", "lookup")),
        "Which sequence memory": (policies.memory_arms, ("memory_tasks", "memory_once")),
        "Which sequence memory, task by task": (policies.memory_per_task, ("memory_tasks",)),
    },
    "The robot's memory": {
        "Where is it now?": (memory.household_now, ("household",)),
        "Where was it?": (memory.household_past, ("household",)),
        "What the scene graph gets right": (memory.household_quality, ("household",)),
        "Fetching": (memory.fetching, ("fetch", "fetch_limit")),
        "Advice on where to look": (memory.advice, ("fetch",)),
        "Short-term memory: what to keep": (memory.eviction, ("eviction",)),
        "Speed and size": (memory.speed, ("memory", "memory_ram", "memory_weeks")),
        "A commit that survives a power cut": (lambda results: speed.plain(results["fsync"]), ("fsync",)),
        "Speed of the other stores": (lambda results: speed.plain(results["stores"]), ("stores",)),
    },
    "Judging and learning": {
        "Is the goal reached?": (learning.verdicts, ("verdicts",)),
        "What the memory cannot judge": (learning.classifier, ("classifier",)),
        "Goals of a robot": (learning.twin, ("twin",)),
        "Practising on a twin": (learning.improvement, ("improvement",)),
        "Practice with critics": (learning.critics, ("critics",)),
        "Practice by corrections": (learning.corrections, ("corrections",)),
        "Practice where a camera was moved": (learning.shifts, ("shifts",)),
        "Practice on other robots": (learning.other_gaps, ("gaps",)),
        "Practice of several tasks": (learning.continual, ("continual",)),
        "Practice of a policy with memory": (learning.memory_practice, ("memory_practice",)),
        "Practice that is helped": (learning.helped, ("helped",)),
        "A new task": (learning.new_task, ("new_task",)),
        "Replays on robots that differ": (learning.replays, ("replays",)),
        "Practice by replays where motions differ": (learning.replay_practice, ("replay_practice",)),
        "A demo that learns": (learning.demo, ("learning_demo",)),
        "A robot that learns behind the gate": (learning.promise, ("promise",)),
        "The gate's test": (learning.gate, ("gate",)),
        "The gate's test beside others": (learning.gate_peers, ("gate_peers",)),
        "The gate and policies of known quality": (learning.gate_policies, ("gate_policies",)),
        "The policy's weakest place": (learning.worst_case, ("worst_case",)),
        "The gate under kill -9": (learning.gate_kills, ("gate_kills",)),
        "Finding a robot's gap": (learning.identification, ("identification",)),
    },
    "Perception": {"Objects from RGB-D frames": (speed.perception, ("perception",))},
    "A new user's first hour": {"The commands of the README": (speed.first_hour, ("first_hour",))},
    "Speed of the loop": {
        "From camera to command": (speed.latency, ("loop",)),
        "Executors": (lambda results: speed.plain(results["executors"]), ("executors",)),
        "The motion barrier": (lambda results: speed.plain(results["barrier"]), ("barrier",)),
        "The policy": (speed.policy_speed, ("policy",)),
        "Simulation": (speed.simulation, ("sim",)),
        "The learner": (speed.learner, ("learner",)),
    },
}
"""Chapter, then section: the function that writes it and the result files that it reads. Without one there is none."""

HEAD = """# Results

Written by `python -m engram.benchmarks.results_page` from the files in `benchmarks/results/`; a test compares the two.
Square brackets hold 95 % intervals: Wilson intervals for rates, bootstrap intervals for means and ratios. *n* is the
number of episodes, questions or repetitions. "Target" is the figure that was fixed before the measurement. Where a
section says so, brackets hold quartiles instead.
`base` and `engram` are the two shipped policies: `base` for the six tabletop tasks, `engram` for all tasks, with a
memory. `memory` is an earlier policy that `engram` replaced. Engram is this software.
[Where each figure comes from](#provenance) lists commit, seeds and machine of every file.
[Reproducing the figures](how-to/reproduce.md) says how to measure again.
"""


def page(results: Results) -> str:
    """Return the whole page."""
    lines = [HEAD]
    used: set[str] = set()
    for chapter, sections in CHAPTERS.items():
        lines += [f"## {chapter}", "", *NOTES.get(chapter, ())]
        for title, (write, names) in sections.items():
            if not set(names) <= results.keys():
                continue  # not measured yet
            used |= set(names)
            lines += [f"### {title}", "", *write(results), _sources(names)]
    rest = [result for name, result in results.items() if name not in used]
    if rest:
        lines += ["## More measurements", ""]
    for result in rest:
        body = policies.evaluation(result) if "per_task" in result.content else speed.plain(result)
        title = str(result.content.get("title") or result.name.replace("_", " "))
        lines += [f"### {title[0].upper()}{title[1:]}", "", *body, _sources((result.name,))]
    lines += ["## Provenance", "", *_provenance(results)]
    return "\n".join(lines).rstrip() + "\n"


def _sources(names: tuple[str, ...]) -> str:
    return "Source: " + ", ".join(f"`{name}.json`" for name in names) + ".\n"


def _provenance(results: Results) -> list[str]:
    rows = [[f"`{r.name}.json`", r.command, r.commit, r.seeds, r.machine] for r in results.values()]
    return [
        "What a file does not say is shown as *not recorded*. A `+` after a commit says that tracked files had been",
        "changed when the measurement ran.",
        "",
        *table(("file", "command", "commit", "seeds", "machine"), rows),
    ]


def readme_table(results: Results) -> str:
    """Return the table of results for the README."""
    base, experts = results["eval_base"].content["mean"], results["eval_experts"].content["mean"]
    tasks = results["memory_tasks"]
    arms = {arm: tasks.figure(f"memory_tasks_mean_{arm}") for arm in ("bank", "hcam")}
    emptied = policies.suite(results["eval_engram_zeroed"].content["per_task"], "memory")
    no_memory = f"its memory emptied {percent(emptied)}; chance {percent(tasks.figure('memory_tasks_mean_chance'))}"
    ours, covered = results["eval_engram"].content["per_task"], results["eval_engram_no_context"].content["mean"]
    remembers, seen = (policies.suite(ours, name) for name in ("memory", "unseen"))
    home, fetch, loop = results["household"], results["fetch"], results["loop"]
    now, before = (
        [home.figure(f"{who}_{kind}") for who in ("engram", "full_history")]
        for kind in ("answers_right", "past_knowable_right")
    )
    found = [fetch.figure(f"fetch_{arm}_success") for arm in ("both", "none")]
    camera = [results["shifts"].figure(f"improvement_{MOVED}_corrections_after_{at}") for at in (100, 0)]
    ratio = loop.figure("loop_overhead_p99_over_raw_rest_later_p99")
    rows = [
        _row("six tabletop tasks", base, f"upper bound, {EXPERT}: {percent(experts)}", "six-tabletop-tasks"),
        _row("twelve memory tasks", remembers, no_memory, "one-policy-for-all-tasks"),
        _row(ALIKE, arms["bank"], f"HCAM {percent(arms['hcam'])}", "which-sequence-memory"),
        _row("target out of view", seen, f"no scene graph {percent(covered)}", "a-target-that-no-camera-sees"),
        _row("household: where is it?", now[0], f"all sightings {percent(now[1])}", "where-is-it-now"),
        _row("household: where was it?", before[0], f"all sightings {percent(before[1])}", "where-was-it"),
        _row("household: find it within five looks", found[0], f"no memory {percent(found[1])}", "fetching"),
        _row(PRACTISED, camera[0], f"before: {percent(camera[1])}", "practice-where-a-camera-was-moved"),
        [
            "loop overhead, p99 (lower is better)",
            f"{number(ratio)} x",
            "raw rclpy, same bytes: 1",
            samples(ratio),
            _link("from-camera-to-command"),
        ],
    ]
    return "\n".join(table(("task suite", "ours", "compared with", "n", ""), rows))


def _row(name: str, ours: Mapping[str, object], baseline: str, anchor: str) -> list[str]:
    return [name, percent(ours), baseline, samples(ours), _link(anchor)]


def _link(anchor: str) -> str:
    return f"[details](docs/results.md#{anchor})"


def with_table(readme: str, results: Results) -> str:
    """Return the README with the table between its two markers written anew."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{readme_table(results)}\n{END}{after}"


def main() -> None:
    """Write both, and the pictures of the page."""
    results = load_results()
    PAGE.write_text(page(results))
    README.write_text(with_table(README.read_text(), results))
    promised = results["promise"].content
    happenings = [Happening(**one) for one in promised["happenings"]]
    picture(PAGE.parent / learning.PICTURE, Story(promised["goals"], happenings))
    print(f"{PAGE}\n{README}\n{PAGE.parent / learning.PICTURE}")


if __name__ == "__main__":
    main()
