"""The page of a verdict tells the decision, and its evidence is that of the gate."""

import math
from dataclasses import asdict, replace
from html.parser import HTMLParser

import numpy as np

from engram.learning.weights.gate_verdict import GateVerdict
from engram.sim.gaps import DEVIATIONS
from engram.validation.gate import Gate, GateConfig
from engram.validation.report import GAIN, evidence, page, write_page
from engram.validation.worst_case import WorstCase


def gate(rates, pairs=120):
    made = Gate([*rates], GateConfig())
    rng = np.random.default_rng(0)
    for _ in range(pairs):
        for task, (candidate, approved) in rates.items():
            luck = rng.random()
            made.add(task, luck < candidate, luck < approved)
    return made


def gains(seen):
    return [GAIN[outcome] for outcome in seen["outcomes"]]


def test_the_evidence_of_a_page_decides_as_the_gate_did():
    made = gate({"reach": (0.95, 0.95), "stack": (0.4, 0.9)})
    seen = {task["task"]: task for task in made.report()["tasks"]}
    needed = -math.log(GateConfig().false_promotion)
    for name in ("reach", "stack"):
        assert len(seen[name]["outcomes"]) == seen[name]["pairs"]
        assert (max(evidence(gains(seen[name]), 0.1)[0]) >= needed) == seen[name]["not_worse"]
    assert max(evidence(seen["stack"]["gains"], 0.1)[1]) >= -math.log(0.05 / 5)
    assert seen["stack"]["worse"]


def test_the_page_names_decision_tasks_weights_and_draws_both_tests(tmp_path):
    report = gate({"reach": (0.95, 0.95), "stack": (0.4, 0.9)}).report()
    verdict = GateVerdict("c" * 64, "d" * 64, "e" * 12, "reject", "worse: <stack>", report)
    text = write_page(tmp_path / "verdict.html", verdict).read_text()
    assert text == page(verdict)
    for words in ("<h1>reject</h1>", "worse: &lt;stack&gt;", "c" * 64, "d" * 64, "stack", "false promotion", "</svg>"):
        assert words in text
    report = report | {
        "worst_cases": {
            "stack@worst": [asdict(WorstCase("stack", "none", (0.5,) * len(DEVIATIONS), "f" * 64, 2, 9, 10))]
        }
    }
    told = page(replace(verdict, report=report))
    assert f"near the middle of all ranges; weights {'f' * 12} were weak there" in told
    assert "http-equiv" not in text and "<script" not in text
    HTMLParser().feed(text)
