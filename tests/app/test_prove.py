"""Proofs and benchmarks by command: figures judged by hand, measurements that fail are said to have failed."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import tyro

from engram.app import cli
from engram.app import prove as module
from engram.app.commands import BenchConfig, available_benchmarks, bench, bench_command
from engram.app.prove import Figure, ProofError, ProveConfig, last_json, prove, rate_figure, run
from engram.core.errors import UnknownNameError
from engram.core.statistics import wilson


def test_a_rate_is_judged_by_its_value_and_shown_with_its_interval() -> None:
    assert rate_figure("x", wilson(8, 10), 0.8) == Figure("x", 0.8, (0.4902, 0.9433), 10, ">= 0.8", True)
    assert rate_figure("x", wilson(7, 10), 0.8).met is False
    assert rate_figure("x", wilson(7, 10), None).met is None


def test_the_last_line_of_json_counts() -> None:
    assert last_json('{"a": 1}\ntable\n{"a": 2}\n{broken\n') == {"a": 2}
    with pytest.raises(ProofError, match="no line of JSON"):
        last_json("nothing")


def test_a_measurement_that_fails_is_an_error() -> None:
    assert run(["-c", "print('table'); print('[1, 2]')"]) == [1, 2]
    with pytest.raises(ProofError, match="exit code 3"):
        run(["-c", "raise SystemExit(3)"])


def test_figures_are_lines_of_json_and_a_missed_target_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good, bad = rate_figure("good", wilson(9, 10), 0.8), rate_figure("bad", wilson(1, 10), 0.8)

    def broken(_: ProveConfig) -> list[Figure]:
        raise ProofError("the camera fell over")

    monkeypatch.setitem(module.PARTS, "loop", (lambda _: [good],))
    assert prove(ProveConfig(output=tmp_path / "out" / "figures.json")) == 0
    assert json.loads((tmp_path / "out" / "figures.json").read_text())[0]["name"] == "good"
    monkeypatch.setitem(module.PARTS, "loop", (lambda _: [good, bad],))
    capsys.readouterr()
    assert prove(ProveConfig()) == 1
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [row["met"] for row in rows] == [True, False]
    assert "1 of 2 targets met" in shown.err
    first, second = [line.split() for line in shown.err.splitlines() if "0.8" in line]  # what is missed comes first
    assert (first[1], first[3], first[-2]) == ("bad", "0.1", "NO") and (second[1], second[-2]) == ("good", "yes")
    assert set(rows[0]) == {"name", "value", "interval", "n", "target", "met"}
    monkeypatch.setitem(module.PARTS, "loop", (broken, lambda _: [good]))
    assert prove(ProveConfig()) == 1  # the others are measured all the same
    told = capsys.readouterr()
    assert "the camera fell over" in told.err
    assert json.loads(told.out)["name"] == "good"


def test_what_the_same_code_finished_in_a_folder_is_not_measured_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran = []

    def measure(config: ProveConfig) -> list[Figure]:
        ran.append(config.quick)
        return [rate_figure("good", wilson(9, 10), 0.8)]

    monkeypatch.setitem(module.PARTS, "memory", (measure,))
    assert [prove(ProveConfig("memory", work=tmp_path)) for _ in range(2)] == [0, 0]
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and ran == [False]
    assert prove(ProveConfig("memory", quick=True, work=tmp_path)) == 0
    monkeypatch.setattr(module, "digest", lambda *_: "other code")
    assert prove(ProveConfig("memory", work=tmp_path)) == 0
    assert ran == [False, True, False]


def test_other_weights_in_the_same_folder_are_measured_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = []
    monkeypatch.setitem(module.PARTS, "policy", (lambda _: ran.append(1) or [rate_figure("good", wilson(9, 10), 0.8)],))
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"one")
        (folder / "config.json").write_text('{"type": "engram_vla", "memory": "bank"}')
    config = ProveConfig("policy", policy=str(mine), others=(f"none={other}",), work=tmp_path)
    assert [prove(config), prove(config), len(ran)] == [0, 0, 1]
    (mine / "model.safetensors").write_bytes(b"two")
    assert [prove(config), len(ran)] == [0, 2]
    (other / "config.json").write_text("{}")
    assert [prove(config), len(ran)] == [0, 3]


def test_a_piece_of_the_store_s_proof_that_failed_is_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = []

    def call(words: list[str], env: dict[str, str], **_: object) -> int:
        ran.append((words[-1], env["ENGRAM_KILLS"], env["ENGRAM_SEED"]))
        return int(words[-1] == "flipped" and len(ran) < 8)

    monkeypatch.setattr(module.subprocess, "call", call)
    kills, damages = module.prove_store(ProveConfig("memory", work=tmp_path))
    assert (kills.value, kills.n, kills.met) == (0, 300, True)
    assert (damages.value, damages.n, damages.met) == (None, 200, False)
    assert ran[:6] == [("kill_9", "50", str(seed)) for seed in range(20, 26)]
    assert module.prove_store(ProveConfig("memory", work=tmp_path))[1].met is True
    assert [seed for *_, seed in ran[6:]] == ["20", "21", "22", "23", "20"]


def test_unknown_parts_are_named() -> None:
    with pytest.raises(UnknownNameError, match="'lop'; did you mean 'loop'"):
        prove(ProveConfig(part="lop"))
    with pytest.raises(UnknownNameError, match="'simm'; did you mean 'sim'"):
        bench(BenchConfig(parts=("simm",)))


@pytest.mark.parametrize("part", ["memory", "faults", "learner", "gate", "promise"])
def test_a_part_that_proves_no_policy_of_the_user_s_takes_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    monkeypatch.setitem(module.PARTS, part, ())
    for words in (["--policy", "engram"], ["--others", "none=base"]):
        assert cli.main(["prove", part, *words]) == 2
        said = f"would change nothing: part {part} takes neither policy nor others"
        assert words[0] in (error := capsys.readouterr().err) and said in error
    assert cli.main(["prove", part]) == 0


def test_baselines_are_for_the_part_policy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(module.PARTS, "loop", ())
    assert cli.main(["prove", "loop", "--others", "none=base"]) == 2
    assert "--others: ('none=base',): would change nothing: part loop takes policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["loop", "--policy", "bse"], "unknown policy 'bse'; did you mean 'base'"),
        (["loop", "--policy", "nowhere/mine"], "policy 'nowhere/mine': neither a folder nor to be had from the hub"),
        (["loop", "--policy", "."], "policy .: no config.json in this folder"),
        (["loop", "--policy", "nowhere:mine"], "there is no module 'nowhere'"),
        (["policy", "--policy", "engrm"], "unknown policy 'engrm'; did you mean 'engram'"),
        (["policy", "--policy", "base"], "--policy: 'base' has no memory of its episode to prove"),
        (["policy", "--others", "base"], "--others: 'base', expected name=folder"),
        (["policy", "--others", "none=bse"], "unknown policy 'bse'"),
    ],
)
def test_a_policy_that_cannot_be_proved_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(module.PARTS, words[0], (lambda _: pytest.fail("it was measured"),))
    assert cli.main(["prove", *words]) == 2
    assert said in capsys.readouterr().err


def test_only_benchmarks_that_exist_are_offered() -> None:
    assert {"sim", "loop", "perception", "memory"} <= set(available_benchmarks())
    assert bench_command("sim", True) == [sys.executable, "-m", "engram.benchmarks.sim", "--quick"]
    assert bench_command("perception", True)[-2:] == ["--scenes", "40"]


def test_swapped_words_are_counted_by_the_goal_that_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    words = []

    def ran(command: list[str]) -> dict[str, dict[str, dict[str, float]]]:
        words.append(command)
        counts = {"unswapped": (9, 8), "swapped_goal": (8, 9), "original_goal": (0, 1)}
        return {k: {t: asdict(wilson(n, 10)) for t, n in zip("ab", v, strict=True)} for k, v in counts.items()}

    monkeypatch.setattr(module, "run", ran)
    found = {figure.name: figure for figure in module.prove_swap(ProveConfig("policy", quick=True))}
    assert words == [["-m", "engram.app.cli", "eval", "engram", "--swap", "--episodes", "3"]]
    assert {name: (figure.value, figure.n, figure.met) for name, figure in found.items()} == {
        "swap_unswapped": (0.85, 20, None),
        "swap_swapped_goal": (0.85, 20, True),
        "swap_original_goal": (0.05, 20, None),
    }


def test_what_is_out_of_view_is_touched_with_memory_context_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = []

    def ran(command: list[str]) -> dict[str, dict[str, float]]:
        words.append(command[3:])
        return {"mean": asdict(wilson(3 if "no_context" in command else 9, 10))}

    monkeypatch.setattr(module, "run", ran)
    found = module.prove_context(ProveConfig("policy", quick=True))
    usual = ["engram", "--tasks", "unseen", "--episodes", "10"]
    assert words == [usual, [*usual, "--ablation", "no_context"]]
    words.clear()
    module.prove_context(ProveConfig("policy", quick=True, policy="outputs/mine/policy"))
    assert [one[0] for one in words] == ["outputs/mine/policy"] * 2
    assert [(figure.name, figure.value, figure.n, figure.met) for figure in found] == [
        ("unseen_context_given", 0.9, 10, False), ("unseen_context_not_given", 0.3, 10, None)
    ]  # fmt: skip


WHOLE = {
    "gate": {"gate", "gate_peers", "gate_policies", "identification", "worst_case", "gate_kills", "loop"},
    "learner": {
        *("verdicts", "classifier", "twin", "improvement", "memory_practice", "new_task", "replays", "continual"),
        *("robot_corrections", "learning_demo", "learner"),
    },
    "faults": {"faults"},
    "promise": {"promise"},
    "policy": {
        "policy_claims",
        "light",
        "memory_tasks",
        "memory_arms",
        "through_nodes",
        "policy_peers",
        "train_engram",
    },
}
"""Part -> the benchmarks that make its proofs."""


@pytest.mark.parametrize("part", WHOLE)
@pytest.mark.parametrize("quick", [False, True])
def test_one_command_runs_every_benchmark_of_a_part_with_words_that_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, quick: bool
) -> None:
    asked: dict[str, list[list[str]]] = {}

    def ran(words: list[str]) -> dict[str, object]:
        asked.setdefault(words[1].rpartition(".")[2], []).append(words[2:])
        benchmark = words[1].rpartition(".")[2]
        others = {"memory_arms": {"none": "base"}, "train_engram": {"dataset": "demonstrations"}}
        return others.get(benchmark, {"figures": [{"name": f"{benchmark}_x", "value": 1.0, "interval": None}]})

    monkeypatch.setattr(module, "run", ran)
    for measure in module.PARTS[part]:
        if measure.__name__ not in ("prove_swap", "prove_context"):
            measure(ProveConfig(part, quick=quick, work=tmp_path))
    assert set(asked) == WHOLE[part] - ({"memory_arms"} if quick else set())
    for benchmark, runs in asked.items():
        made = importlib.import_module(f"engram.benchmarks.{benchmark}")
        config = CONFIGS.get(benchmark) or next(
            one for one in get_args(get_type_hints(made.main)["config"]) if one is not type(None)
        )
        for words in runs:
            assert tyro.cli(getattr(made, config) if isinstance(config, str) else config, args=words)


CONFIGS = {"memory_arms": "ArmsConfig", "train_engram": "EngramConfig"}
"""Benchmark whose main takes no configuration -> that."""


def test_practices_of_one_benchmark_go_to_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []

    def ran(words: list[str]) -> dict[str, object]:
        outputs.append(Path(words[words.index("--output") + 1]))
        return {"figures": [{"name": "improvement_helped_steps", "value": 0.1, "interval": None}]}

    monkeypatch.setattr(module, "run", ran)
    config = ProveConfig("learner")
    found = [*module.prove_critics(config), *module.prove_corrections(config), *module.prove_helped(config)]
    names = ["critics", "corrections", "shifts", "gaps", "helped"]
    assert [figure.name for figure in found] == [f"{name}_helped_steps" for name in names]
    assert [path.stem for path in outputs] == names and all(path.is_file() for path in outputs)


def test_what_the_gate_costs_the_loop_is_told_without_the_loop_s_other_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("loop_overhead_chunk_due_ms", "loop_beside_the_gate_over_alone_chunk_due_p99")
    rows = [{"name": name, "value": 1.1, "interval": [1.0, 1.2], "n": 9, "target": 1.2, "met": True} for name in names]
    monkeypatch.setattr(module, "run", lambda words: {"figures": rows})
    (figure,) = module.prove_gate_overhead(ProveConfig("gate", quick=True))
    assert figure == Figure(names[1], 1.1, (1.0, 1.2), 9, "1.2", True)


def test_the_policy_is_compared_with_arms_that_are_trained_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ran(words: list[str]) -> dict[str, object]:
        asked.append(words)
        return {"none": "arms/none/policy"} if words[1].endswith("memory_arms") else {"figures": []}

    monkeypatch.setattr(module, "run", ran)
    module.prove_memory_tasks(ProveConfig("policy", work=Path("w")))
    assert asked[0] == ["-m", "engram.benchmarks.memory_arms", "--work", "w/arms"]
    assert asked[1][-2:] == ["--others", "none=arms/none/policy"]
    asked.clear()
    module.prove_memory_tasks(ProveConfig("policy", quick=True))
    module.prove_memory_tasks(ProveConfig("policy", others=("gru=mine",)))
    assert [words[1] for words in asked] == ["engram.benchmarks.memory_tasks"] * 2
    assert "--others" not in asked[0] and asked[1][-2:] == ["--others", "gru=mine"]
