"""Errors about names: what a stranger sent, however long or many, is neither repeated in full nor searched for long."""

from engram.core import errors
from engram.core.errors import CANDIDATES, COMPARED, LISTED, REPEATED, unknown_name


def test_a_long_name_is_cut_and_of_many_choices_the_first_are_listed():
    told = str(unknown_name("frame", "x" * 10_000, [f"{number:04}" + "y" * 10_000 for number in range(LISTED + 2)]))
    assert told.startswith(f"unknown frame '{'x' * REPEATED}...'; valid: 0000yyy") and told.endswith("... and 2 more")
    assert "0099" in told and "0100" not in told and len(told) < LISTED * (REPEATED + 10)


def test_only_short_names_and_few_are_compared(monkeypatch):
    """The time that takes grows with the square of their length: 65,536 characters would take minutes."""
    compared = []

    def match(name, choices, n):
        compared.append((name, choices))
        return []

    monkeypatch.setattr(errors.difflib, "get_close_matches", match)
    long, short = "x" * (COMPARED + 1), "x" * COMPARED
    unknown_name("frame", long, ["tool"])
    assert compared == []
    for _ in range(2):  # what waits for its frame asks again and again
        unknown_name("frame", short, ["tool", long])
    assert compared == [(short, ("tool",))]
    unknown_name("frame", "other", [f"{number}" for number in range(10 * CANDIDATES)])
    assert len(compared[-1][1]) == CANDIDATES


def test_a_slip_is_found_among_many():
    names = [f"object_{number:04}" for number in range(3000)]
    assert "did you mean 'blue cup'" in str(unknown_name("label", "blue cpu", ["red cup", "blue cup", *names]))
