"""The questions about the past and about relations are judged by hand, and asked once of a memory that saw a home."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engram.benchmarks.household import map_memory
from engram.benchmarks.household_figures import figures
from engram.benchmarks.household_past import Past, same
from engram.benchmarks.household_scores import Looked, Scores, ask_everything
from engram.benchmarks.memory_baselines import CaptionMemory, SightingMemory
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.tour import Inspector, Sight
from tests.memory.scenes import WordEncoder, seen, view
from tests.sim.household.homes import lived_in, perfect_record

NINE, TWO, EIGHT = 9 * HOUR_NS, 14 * HOUR_NS, 20 * HOUR_NS


@pytest.fixture
def phone():
    """A life whose phone lay on the first spot until one o'clock and then on the second."""
    life = Life(make_home(5), 5)
    first, second = [spot.name for spot in life.home.spots.values() if not spot.closed][:2]
    life.oracle_carry("phone", first, 1)
    life.oracle_carry("phone", second, 13 * HOUR_NS)
    return life, life.oracle_fact("phone", NINE).placement, life.oracle_fact("phone", TWO).placement


def _past(life: Life, rounds: dict[int, list[str]]) -> Past:
    """Return what rounds (begin -> spots looked at) saw, whose last frame came a second later."""
    past, looked = Past(life, 0), Looked()
    for begin_ns, spots in rounds.items():
        for spot in spots:
            looked.note(spot, [Sight(view([], stamp_ns=begin_ns + 10**9), ())])
        past.note(begin_ns, looked, {})
    return past


def test_an_answer_is_held_against_what_was_true_then(phone):
    life, before, now = phone
    past = _past(life, {NINE: [before.spot], TWO: [now.spot]})
    morning, noon = past.rounds
    assert past.judge(before.position, "phone", morning) == "right"
    assert past.judge(before.position, "phone", noon) == "wrong"
    assert past.judge(now.position, "phone", noon) == "right"
    assert past.judge(None, "phone", noon) == "missing"
    life.oracle_carry("phone", now.spot, EIGHT)
    assert past.judge(now.position, "phone", noon) == "right"  # later moves change nothing


def test_knowable_is_what_was_looked_at_then_or_both_before_and_after(phone):
    life, before, now = phone
    other = next(name for name in life.home.spots if name not in (before.spot, now.spot))
    rounds = {NINE: [before.spot], TWO: [now.spot], EIGHT: [other], DAY_NS + NINE: [now.spot], DAY_NS + TWO: [other]}
    past = _past(life, rounds)
    assert [past.knowable("phone", one) for one in past.rounds] == [True, True, True, True, False]


def test_what_was_believed_is_the_same_if_the_first_answer_is_one_of_those_told():
    here, there = np.zeros(3), np.ones(3)
    assert same([], []) and same([here], [there, here])
    assert not same([here], []) and not same([], [here]) and not same([here, there], [there])


def test_baselines_answer_the_past_with_what_was_seen_until_then(phone):
    life, before, now = phone
    past = _past(life, {NINE: [before.spot], TWO: [now.spot], EIGHT: [now.spot]})
    for memory in (SightingMemory(None, WordEncoder()), CaptionMemory(20, WordEncoder())):
        for at, one in zip((before, now), past.rounds, strict=False):
            memory.update(view([seen("phone", at.position)], stamp_ns=one.end_ns))
        scores = Scores()
        past.ask_where(memory, [("0_to_1_days", "phone", one) for one in past.rounds], scores, EIGHT)
        assert scores.count["past right 0_to_1_days"] == scores.count["past right of knowable 0_to_1_days"] == 3


def test_questions_are_drawn_from_every_span_there_is():
    past = _past(Life(make_home(5), 5), {day * DAY_NS + NINE: [next(iter(make_home(5).spots))] for day in range(12)})
    drawn = past.draw()
    ages = {span: {11 - one.begin_ns // DAY_NS for of, _, one in drawn if of == span} for span, _, _ in drawn}
    assert len(drawn) == 12 and ages["0_to_1_days"] == {1} and max(ages["2_to_7_days"]) <= 7 < min(ages["over_7_days"])


def test_a_memory_that_saw_everything_knows_what_was_where_and_in_what():
    """Two rounds, before and after everything was moved by hand; both are told right, and what was told then."""
    life, world = lived_in(seed=6)
    inspector = Inspector(world, ModelSense(perfect_record(), WordEncoder()), 6)
    memory, looked, past, scores = map_memory(life.home, WordEncoder()), Looked(), Past(life, 6), Scores()
    open_ = [spot.name for spot in life.home.spots.values() if not spot.closed]
    for begin_ns in (life.now_ns, TWO):
        world.arrange(life.oracle_placements())
        for i, spot in enumerate(life.home.spots):
            sights = inspector.look(spot, begin_ns + i * 30 * 10**9)
            looked.note(spot, sights)
            for sight in sights:
                memory.update(sight.scene)
        told = ask_everything(memory, life, looked, Scores(), begin_ns + HOUR_NS)
        past.note(begin_ns, looked, told)
        past.ask_contents(memory, scores, begin_ns + HOUR_NS)
        if begin_ns != TWO:
            for i, name in enumerate(("flower vase", "radio", "camera", "wallet")):
                life.oracle_carry(name, open_[i], begin_ns + 2 * HOUR_NS)
    morning = [("0_to_1_days", kind.name, past.rounds[0]) for kind in life.things.values()]
    past.ask_where(memory, morning, scores, TWO + HOUR_NS)
    past.ask_believed(memory, morning, scores, TWO + HOUR_NS)
    memory.close()
    world.close()
    count = scores.count
    assert count["past questions 0_to_1_days"] == 38 and count["past right 0_to_1_days"] >= 34
    assert count["believed then same 0_to_1_days"] >= 37
    for what in ("on now", "in now", "on then", "in then"):
        assert count[f"{what} there"] >= count[f"{what} right"] >= 0.8 * count[f"{what} there"] > 0, what
        assert count[f"{what} told"] <= count[f"{what} right"] + 1
    assert count["contents believed then"] == 3 and count["contents believed then same"] >= 2


def test_figures_of_the_past_by_hand():
    """8 of 10 right; of 5 knowable 4; 3 of 4 the same; two of the three told lie there, of four that do."""
    near, far = "0_to_1_days", "over_7_days"
    count = Counter({
        f"past questions {near}": 4, f"past right {near}": 4, f"past questions {far}": 6, f"past right {far}": 4,
        f"past knowable {far}": 5, f"past right of knowable {far}": 4, "in then told": 3, "in then right": 2,
        f"believed then {near}": 4, f"believed then same {near}": 3, "in then there": 4, "questions": 1, "stale": 1,
    })  # fmt: skip
    scores = {"count": dict(count), "error_m": [], "told": []}
    names = ("engram", "captions", "newest_100", "full_history", "engram_camera")
    home = {"scores": dict.fromkeys(names, scores), "days": [Counter(disk_mb=1.0, ram_mb=1.0)]}
    rows = {row["name"]: row for row in figures([home])}
    assert rows["engram_past_right"]["value"] == 0.8 and rows["engram_past_knowable_right"]["value"] == 0.8
    assert rows["engram_past_right_over_7_days"]["value"] == pytest.approx(4 / 6, abs=1e-4)
    assert rows["full_history_past_right"]["n"] == 10
    assert rows["believed_then_same"]["value"] == 0.75 and rows["believed_then_same"]["met"] is False
    assert rows["in_then_precision"]["value"] == pytest.approx(2 / 3, abs=1e-4)
    assert rows["in_then_recall"]["value"] == 0.5
