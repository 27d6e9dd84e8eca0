"""The results page and the README's table are what the result files say; no other page has figures typed by hand."""

import re

import pytest

from engram.benchmarks.result_files import NOT_RECORDED, ResultFile, load_results, number, percent, short, target
from engram.benchmarks.results_page import BEGIN, END, PAGE, README, page, with_table
from tests.docs.pages import PAGES, name

COMMAND = "run: python -m engram.benchmarks.results_page"


@pytest.fixture(scope="module")
def results():
    return load_results()


def test_the_page_is_up_to_date(results):
    assert PAGE.read_text() == page(results), COMMAND


def test_the_table_of_the_readme_is_up_to_date(results):
    text = README.read_text()
    assert BEGIN in text and END in text
    assert text == with_table(text, results), COMMAND


def test_a_new_result_file_is_shown_without_further_code(results):
    rows = [{"name": "made_up_speed", "value": 2.5, "interval": [2.0, 3.0], "n": 7, "target": "<= 3", "met": True}]
    text = page({**results, "made_up": ResultFile("made_up", {"benchmark": "made_up", "figures": rows})})
    assert "### Made up\n" in text
    assert "| speed | 2.5 [2, 3] | 7 | <= 3: met |" in text
    assert f"| `made_up.json` | {NOT_RECORDED} | {NOT_RECORDED} | {NOT_RECORDED} | {NOT_RECORDED} |" in text


def test_a_section_is_left_out_until_it_was_measured_and_then_told(results):
    without = {name: result for name, result in results.items() if name != "worst_case"}
    assert "### The policy's weakest place" not in page(without)
    found, missed = (
        {"name": f"worst_case_found_by_{way}", "value": value, "interval": [0.2, 1], "n": 1, "target": goal, "met": met}
        for way, value, goal, met in (("search", 1.0, ">= 0.9", True), ("random", 0.0, None, None))
    )
    case = {"planted": [["friction times", 0.0, 0.15]], "search": True, "random": False}
    content = {"config": {"task": "reach", "episodes": 200}, "figures": [found, missed], "cases": [case]}
    text = page({**without, "worst_case": ResultFile("worst_case", content)})
    assert "| friction times, 0 to 0.15 | found | missed |" in text
    assert "Found by the search: 100.0 % [20.0, 100.0] (target >= 0.9: met); at random: 0.0 %" in text


def test_the_loop_beside_the_gate_is_told_where_it_was_measured(results):
    loop = results["loop"].content
    old = [row for row in loop["figures"] if "beside_the_gate" not in row["name"]]
    assert "beside the gate" not in page({**results, "loop": ResultFile("loop", {**loop, "figures": old})})
    row = {"value": 30.0, "p50": 20.0, "interval": [29.0, 31.0], "n": 9, "target": None, "met": None}
    ratio = {**row, "value": 1.1, "p50": 1.0, "interval": [1.0, 1.2], "target": 1.2, "met": True}
    new = [{**row, "name": "loop_beside_the_gate_chunk_due_ms"},
           {**ratio, "name": "loop_beside_the_gate_over_alone_chunk_due_p99"}]  # fmt: skip
    text = page({**results, "loop": ResultFile("loop", {**loop, "figures": [*old, *new]})})
    assert "| camera to command, when a chunk is due | 20 | 30 [29, 31] | 1 | 1.1 [1, 1.2] | 1.2: met |" in text


def test_numbers_are_written_as_computed_by_hand():
    assert percent({"rate": 0.125, "low": 0.1, "high": 0.2}) == "12.5 % [10.0, 20.0]"
    assert percent({"value": 0.5, "interval": None}) == "50.0 %"
    assert percent({}) == "–"
    assert number({"value": 1.2345, "interval": [1, 2]}, "ms") == "1.23 [1, 2] ms"
    assert short(57537.9) == "57,538"
    assert target({"target": "<= 1", "met": False}) == "<= 1: **missed**"


def test_provenance_comes_from_the_file_alone():
    known = ResultFile("x", {"command": "eval base", "commit": "0123456789+", "seeds": [0, 100], "per_task": {}})
    assert (known.command, known.commit, known.seeds) == ("`engram eval base`", "`0123456+`", "0-99 for each task")
    swapped = ResultFile("x", {"command": "eval base --swap", "seeds": [10, 20], "unswapped": {}, "swapped_goal": {}})
    assert swapped.seeds == "10-29 for each task"
    assert ResultFile("x", {"seeds": [10, 11, 12]}).seeds == "10-12"
    assert ResultFile("x", {"config": {"first_seed": 5}}).seeds == "from 5"


TYPED = re.compile(r"\d(?:\.\d+)? ?%|\[\d+(?:\.\d+)?, \d+(?:\.\d+)?\]")
ALLOWED = ("95 % interval", "95 % intervals")


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p != PAGE and "decisions" not in p.parts],
    ids=name,
)
def test_no_figure_is_typed_by_hand(page):
    text = page.read_text()
    text = text[: text.find(BEGIN)] + text[text.find(END) :] if BEGIN in text else text
    for words in ALLOWED:
        text = text.replace(words, "")
    in_code = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    found = [line for line in in_code.splitlines() if TYPED.search(line)]
    assert not found, f"{name(page)}: figures belong in docs/results.md: {found}"


def test_the_readme_fits_on_a_few_screens():
    assert len(README.read_text().splitlines()) <= 150
