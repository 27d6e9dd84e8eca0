"""Semantic memory: habits, survival and skills against numbers worked out by hand or by SciPy."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from scipy.stats import chi2

from engram.core.errors import InvalidInputError
from engram.core.questions import Selection
from engram.memory.stores.semantic.rhythm import hours_between, rhythm_of
from engram.memory.stores.semantic.store import SemanticConfig, SemanticMemory
from engram.memory.stores.semantic.survival import SurvivalCurve, moving_rate
from tests.contracts.memory_store import MemoryStoreContract
from tests.memory.updates import SECOND, embed, event, node, step

HOUR_NS = 3600 * 10**9
FREIREICH = {  # weeks of remission under 6-MP, Freireich et al. 1963; True = ended, False = censored
    True: [6, 6, 6, 7, 10, 13, 16, 22, 23],
    False: [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35],
}


class TestSemanticMemory(MemoryStoreContract):
    def make(self):
        return SemanticMemory(embed)

    def settle(self, store):
        store.consolidate(10.0)


def test_kaplan_meier_gives_the_textbook_numbers():
    stays = [(weeks, ended) for ended, all_weeks in FREIREICH.items() for weeks in all_weeks]
    curve = SurvivalCurve([weeks for weeks, _ in stays], [ended for _, ended in stays])
    expected = {0: 1.0, 6: 18 / 21, 8: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482, 40: 0.4482}
    for weeks, share in expected.items():
        assert curve.still_there(weeks).value == pytest.approx(share, abs=1e-4)
    assert curve.median_s == 23
    ten = curve.still_there(10)
    assert (ten.low, ten.high) == (pytest.approx(0.5032, abs=1e-3), pytest.approx(0.8894, abs=1e-3))


def test_a_constant_rate_has_the_exact_poisson_interval():
    rate = moving_rate(4, 100.0)
    assert rate.rate == 0.04 and rate.median_s == pytest.approx(log(2) / 0.04)
    assert rate.low == pytest.approx(chi2.ppf(0.025, 8) / 200) and rate.high == pytest.approx(chi2.ppf(0.975, 10) / 200)
    chance = rate.still_there(25.0)
    assert chance.value == pytest.approx(exp(-4.5 / 4)) and chance.low < chance.value < chance.high
    never = moving_rate(0, 100.0)
    assert (never.rate, never.low) == (0.0, 0.0) and never.high == pytest.approx(-log(0.025) / 100)
    with pytest.raises(InvalidInputError, match="above 0"):
        moving_rate(1, 0.0)


def test_the_interval_of_the_rate_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        moves = int(rng.poisson(0.02 * 300))
        rate = moving_rate(moves, 300.0)
        covered += rate.low <= 0.02 <= rate.high
    assert covered / 400 >= 0.93


def live(store: SemanticMemory, stays: list[tuple[str, float]], node_id: str = "object_1", label: str = "cup") -> float:
    """Let an object rest at each place in turn for so many seconds, seen all the time; return the end [s]."""
    places = [node("place_1", "table"), node("place_2", "shelf")]
    now, before = 0.0, ""
    for i, (place_id, seconds) in enumerate(stays):
        place = (float(place_id[-1]), 0.0, 0.0)
        change = event("moved" if i else "new", node_id, label, now, place)
        off = before if before != place_id else ""
        store.update(step(change, on=place_id, off=off, seen_too=places), 0)
        now, before = now + seconds, place_id
        store.update(step(stamp_s=now, seen_too=[node(node_id, label, place, now)]), 0)
    store.consolidate(10.0)
    return now


def test_usual_places_are_shares_of_the_time_with_wilson_intervals_of_the_stays():
    store = SemanticMemory(embed)
    live(store, [("place_1", 300.0), ("place_2", 100.0)] * 3 + [("place_1", 1.0)])
    (first, share, visits), (second, _, _) = store.usual_places("cup")
    assert (first.label, second.label) == ("table", "shelf")
    assert share == pytest.approx(901 / 1201) and (visits.successes, visits.n) == (4, 7)
    np.testing.assert_allclose(first.mean, (1, 0, 0))
    (found, _) = store.recall(Selection(vector=embed("cup")))
    assert found.score == pytest.approx(901 / 1201, abs=1e-6)
    assert found.text.startswith("the cup is usually at the table: 75 % of the time, 4 of 7 stays")
    assert [one.place[0] for one in store.recall(Selection(vector=embed("cup"), target="shelf"))] == [2.0]


def test_survival_counts_whole_stays_and_the_time_of_all():
    store = SemanticMemory(embed)
    live(store, [("place_1", 50.0), ("place_2", 100.0)] * 6 + [("place_1", 40.0)])
    survival = store.survival("cup")
    assert (survival.rate.moves, survival.rate.exposure_s) == (12, pytest.approx(6 * 150 + 40))
    # the first stay began unseen: 11 whole ones (5 x 50, 6 x 100), and 40 s so far
    assert survival.curve.still_there(60.0).value == pytest.approx(6 / 11)
    rate = 12 / 940
    # it has been there for 40 s, 20 more are asked: 11 lasted to 50, when five ended, and 6 to 60, beside 5 of the rate
    expected = exp(-rate * 5 * (10 / 16 + 10 / 11)) * (1 - 5 / 16)
    assert store.still_there("object_1", "cup", int((940 + 20) * SECOND)).value == pytest.approx(expected)
    # beyond the longest only the rate tells
    assert survival.still_there(1100.0, known_s=100.0).value == pytest.approx(exp(-1000 * rate))
    assert store.still_there("object_9", "cup", 0) is None and store.survival("bowl") is None


def test_that_none_of_few_long_stays_ended_is_no_certainty():
    """Ten stays of 50 s, two that go on since 900 s: nothing ever ended between 700 and 800 s."""
    curve, rate = SurvivalCurve([50.0] * 10 + [900.0] * 2, [True] * 10 + [False] * 2), moving_rate(10, 2300.0)
    assert curve.still_there(800.0).value == curve.still_there(700.0).value
    chance = curve.goes_on(700.0, 800.0, rate)
    assert chance.value == pytest.approx(exp(-100 * 10.5 / 2300 * 5 / 7))  # the rate's five stays beside the two
    assert chance.low < chance.value < chance.high
    many = SurvivalCurve([50.0] * 10 + [900.0] * 995, [True] * 10 + [False] * 995)
    assert many.goes_on(700.0, 800.0, rate).value > 0.99


def test_an_unnoticed_move_is_dated_to_the_middle_of_the_gap():
    store = SemanticMemory(embed)
    store.update(step(event("new", "object_1", "cup", 0)), 0)
    store.update(step(stamp_s=100, seen_too=[node("object_1", "cup", stamp_s=100)]), 0)
    store.update(step(event("moved", "object_1", "cup", 300, (1.0, 0, 0))), 0)
    store.consolidate(10.0)
    # 0 .. 200 at the first place; at the new one since 200, last seen there at 300
    assert store.survival("cup").rate.exposure_s == pytest.approx(200 + 100)


def test_a_carried_object_does_not_rest():
    store = SemanticMemory(embed, SemanticConfig(settle_s=2.0))
    store.update(step(event("new", "object_1", "cup", 0)), 0)
    for i in range(20):
        store.update(step(event("moved", "object_1", "cup", 100 + 0.5 * i, (0.1 * i, 0, 0))), 0)
    store.update(step(event("moved", "object_1", "cup", 300, (5, 0, 0))), 0)
    store.consolidate(10.0)
    assert store.survival("cup").rate.moves == 2  # it left the first place and the last, not the 19 between


def test_what_never_moved_lasts_for_all_that_is_known():
    store = SemanticMemory(embed)
    live(store, [("place_1", 5000.0)], label="sofa")
    assert store.survival("sofa").still_there(5000.0).value == pytest.approx(exp(-0.5))  # half a move in what was seen
    assert store.survival("sofa").still_there(1e6).high == 1.0
    assert store.survival("sofa").still_there(1e6).low == pytest.approx(0.0, abs=1e-6)
    assert store.usual_places("sofa")[0][0].label == "table"


def test_an_object_that_is_known_well_has_its_own_places():
    store = SemanticMemory(embed)
    live(store, [("place_1", 300.0), ("place_1", 300.0)] * 3, "object_1")
    live(store, [("place_2", 3000.0), ("place_2", 3000.0)] * 3, "object_2")
    assert store.usual_places("cup")[0][0].label == "shelf"
    assert store.usual_places("cup", "object_1")[0][0].label == "table"
    assert store.usual_places("cup", "object_7")[0][0].label == "shelf"


def test_skills_are_counted_by_policy_version():
    store = SemanticMemory(embed)
    for version, results in (("base", (1, 0, 0, 1)), ("edited", (1, 1, 1))):
        for success in results:
            store.skill("pick_place", version, bool(success))
    base, edited = store.skills()
    assert (base.policy_version, edited.policy_version, edited.rate.rate) == ("base", "edited", 1.0)
    rate = base.rate
    assert (rate.successes, rate.n) == (2, 4) and rate.low == pytest.approx(0.150, abs=1e-3)
    found = store.recall(Selection(vector=embed("pick place")))
    assert [one.text.split(" [")[0] for one in found] == [
        "pick_place with policy edited succeeds 1.000",
        "pick_place with policy base succeeds 0.500",
    ]


def test_a_skill_whose_name_is_long_is_counted_under_a_short_one():
    store = SemanticMemory(embed)
    words = "put the cup in the box " * 40
    for success in (True, False):
        store.skill(words, "v" * 900, success)
    (skill,) = store.skills()
    assert len(skill.task) <= 100 and (skill.successes, skill.n) == (1, 2)
    again = SemanticMemory(embed)
    again.restore(store.state().changed)
    again.skill(words, "v" * 900, True)
    assert [(one.successes, one.n) for one in again.skills()] == [(2, 3)]


class StepClock:
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_consolidation_keeps_to_its_budget_gets_on_and_goes_round():
    store = SemanticMemory(embed, clock=StepClock())
    for i in range(10):
        store.update(step(event("new", f"object_{i}", f"kind {i}", 0)), 0)
    assert store.stale == 10
    assert store.consolidate(2.5) == 7  # a look at the clock after each: 1 s, 2 s, 3 s > 2.5
    assert store.consolidate(0.0) == 6  # at least one
    while store.stale:
        store.consolidate(0.0)
    store.update(step(stamp_s=50, seen_too=[node("object_3", "kind 3", stamp_s=50)]), 0)
    for _ in range(10):
        store.consolidate(0.0)
    assert store.survival("kind 3").rate.exposure_s == pytest.approx(50)  # no event, and yet refreshed


def test_habits_and_skills_stay_bounded_over_a_long_life():
    config = SemanticConfig(max_classes=20, max_objects=30, max_skills=5)
    store = SemanticMemory(embed, config)
    rng = np.random.default_rng(0)
    keys: set[str] = set()
    for i in range(2000):
        number = rng.integers(200)
        changed = event("moved", f"object_{number}", f"kind {number}", 10.0 * i, rng.uniform(-30, 30, 3))
        deleted = [f"object_{rng.integers(200)}"] if i % 3 == 0 else []
        store.update(step(changed, deleted=deleted), 0)
        store.skill(f"task {number}", "base", True)
        if i % 50 == 0:
            store.consolidate(0.01)
            state = store.state()
            keys = (keys | {row.key for row in state.changed}) - set(state.removed)
    state = store.state()
    keys = (keys | {row.key for row in state.changed}) - set(state.removed)
    count = {kind: sum(key.startswith(kind) for key in keys) for kind in ("class/", "object/", "skill/", "stay/")}
    assert (count["class/"], count["object/"], count["skill/"]) == (20, 30, 5)
    assert count["stay/"] <= 200
    largest = max(len(str(dict(row.data))) for row in state.changed)
    assert largest < 10_000


def test_hours_between_two_instants_are_counted_by_the_hour_of_the_day():
    """From 22:30 to 01:15 the next day: half of 22 h, all of 23 h and 0 h, a quarter of 1 h."""
    hours = hours_between(int(22.5 * HOUR_NS), int(25.25 * HOUR_NS))
    assert {i: s for i, s in enumerate(hours) if s} == {0: 3600.0, 1: 900.0, 22: 1800.0, 23: 3600.0}
    assert hours_between(3 * HOUR_NS, 51 * HOUR_NS).tolist() == [7200.0] * 24


def test_time_goes_by_at_the_pace_of_its_hours():
    """9 of 10 moves in one hour and 1 in the next, both watched alike: 5 expected of each, half a move is the prior."""
    moves, watched = np.zeros(24), np.zeros(24)
    moves[12], moves[13], watched[12:14] = 9.0, 1.0, 3600.0
    rhythm = rhythm_of(moves, watched)
    assert rhythm.pace[12:15] == pytest.approx([9.5 / 5.5, 1.5 / 5.5, 1.0])
    assert rhythm.seconds(int(12.5 * HOUR_NS), int(13.5 * HOUR_NS)) == pytest.approx(1800 * 11 / 5.5)
    assert rhythm.seconds(0, 24 * HOUR_NS) == pytest.approx(24 * 3600)
    assert rhythm_of(np.zeros(24), np.zeros(24), rhythm).pace == pytest.approx(rhythm.pace)


def test_what_moves_by_day_is_still_there_in_the_morning():
    """A cup is seen at 9 and at 21 h, in a new place every evening: the night costs it less than the day."""
    store, places = SemanticMemory(embed), [node("place_1", "table"), node("place_2", "shelf")]
    for day in range(30):
        here, hour = places[day % 2], 3600.0
        evening = day * 24 * hour + 21 * hour
        cup = (float(here.id[-1]), 0.0, 0.0)
        change = event("moved" if day else "new", "object_1", "cup", evening, cup)
        store.update(step(change, on=here.id, off=places[(day + 1) % 2].id if day else "", seen_too=places), 0)
        morning = evening + 12 * hour
        store.update(step(stamp_s=morning, seen_too=[node("object_1", "cup", cup, morning)]), 0)
        store.consolidate(10.0)
    seen_ns = int(morning * 1e9)
    by_day = store.still_there("object_1", "cup", seen_ns + 11 * HOUR_NS).value
    store.update(step(stamp_s=morning + 12 * hour, seen_too=[node("object_1", "cup", cup, morning + 12 * hour)]), 0)
    by_night = store.still_there("object_1", "cup", seen_ns + 23 * HOUR_NS).value
    assert by_day < 0.5 and by_night > 0.8


def test_habits_of_the_day_survive_the_disk():
    store = SemanticMemory(embed)
    live(store, [("place_1", 4000.0), ("place_2", 50.0)] * 3)
    again = SemanticMemory(embed)
    again.restore(store.state().changed)
    again.consolidate(10.0)
    assert again._summaries["class/cup"].rhythm.pace == pytest.approx(store._summaries["class/cup"].rhythm.pace)
