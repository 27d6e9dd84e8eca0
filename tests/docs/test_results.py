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
