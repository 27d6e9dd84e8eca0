"""Words of goals and questions are bounded, and names that are made of them are short and stay apart."""

import json

import pytest

from engram.core.errors import InvalidInputError
from engram.core.questions import AtTime, Count, FindObject, Relation, Selection
from engram.core.words import NAME_MAX, WORDS_MAX, check_words, short_name


def test_words_up_to_the_bound_are_taken_and_longer_ones_are_named_with_their_field():
    check_words("instruction", "x" * WORDS_MAX)
    with pytest.raises(InvalidInputError, match=f"instruction: {WORDS_MAX + 1} characters, expected at most 1000"):
        check_words("instruction", "x" * (WORDS_MAX + 1))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda words: FindObject(words), "FindObject.text"),
        (lambda words: Relation("in", words), "Relation.target"),
        (lambda words: AtTime(Count("cup", target=words), (0, 1)), "Count.target"),
        (lambda words: Selection(text=words), "Selection.text"),
    ],
)
def test_no_question_has_longer_ones(make, field):
    make("x" * WORDS_MAX)
    with pytest.raises(InvalidInputError, match=f"{field}: 1001 characters"):
        make("x" * (WORDS_MAX + 1))


def test_a_short_name_stays_and_a_long_one_is_cut_with_a_digest():
    assert short_name("put the röd cube in the bin") == "put the röd cube in the bin"
    assert short_name("x" * NAME_MAX) == "x" * NAME_MAX
    one, other = (short_name("x" * 200 + end) for end in ("a", "b"))
    assert one != other and one == short_name("x" * 200 + "a") and len(one) == len(other) == NAME_MAX
    assert one.startswith("x" * 80)


def test_a_name_is_printable_so_that_it_takes_little_room_in_json():
    name = short_name("open\x00 the\ndrawer")
    assert name.startswith("open  the drawer… ") and name != short_name("open  the drawer")
    assert len(json.dumps(short_name("\x01" * 500), ensure_ascii=False)) <= NAME_MAX + 2
