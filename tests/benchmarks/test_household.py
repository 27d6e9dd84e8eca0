"""The judge of the household is judged by hand; the whole run is run small."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from engram.benchmarks.fetch import FetchBenchmark, Searcher, finished_home, oracle_way, suggested
from engram.benchmarks.fetch_figures import ARMS, ASKERS, Trip, limit_figures
from engram.benchmarks.fetch_figures import figures as fetch_figures
from engram.benchmarks.fetch_limit import OracleBelief
from engram.benchmarks.fetch_limit import run_home as run_limit
from engram.benchmarks.household import HouseholdBenchmark, map_memory, run_home
from engram.benchmarks.household_figures import figures, reliability
from engram.benchmarks.household_fit import compare
from engram.benchmarks.household_scores import Looked, Merges, Scores, ask_everything, judge, score_graph
from engram.benchmarks.memory_baselines import SightingMemory
from engram.benchmarks.memory_weeks import WeeksBenchmark, live
from engram.benchmarks.memory_weeks import figures as weeks_figures
from engram.core.questions import FindObject
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.tour import Inspector, Sight
from tests.memory.scenes import WordEncoder, seen, view
from tests.sim.household.homes import lived_in, perfect_record


@pytest.fixture
def phone():
    """A life whose phone lay on the first spot until hour 1 and then on the second, and a record of looks."""
    life = Life(make_home(5), 5)
    first, second = [spot.name for spot in life.home.spots.values() if not spot.closed][:2]
    life.oracle_carry("phone", first, 1)
    life.oracle_carry("phone", second, HOUR_NS)
    before = life.oracle_fact("phone", HOUR_NS - 1).placement
    now = life.oracle_placements()["phone"]
    return life, before, now, Looked()


def _look(looked: Looked, spot: str, stamp_ns: int) -> None:
    looked.note(spot, [Sight(view([], stamp_ns=stamp_ns), ())])


def test_a_wrong_answer_is_stale_only_after_a_look_at_the_answered_place(phone):
    life, before, now, looked = phone
    assert judge(now.position, "phone", life, looked) == "right"
    assert judge(before.position, "phone", life, looked) == "outdated"
    _look(looked, before.spot, HOUR_NS - 1)  # it was still there
    assert judge(before.position, "phone", life, looked) == "outdated"
    _look(looked, before.spot, HOUR_NS + 1)
    assert judge(before.position, "phone", life, looked) == "stale"


def test_no_answer_is_missing_only_when_the_thing_was_in_view(phone):
    life, _, now, looked = phone
    assert judge(None, "phone", life, looked) == "unknown"
    _look(looked, now.spot, HOUR_NS + 1)
    assert judge(None, "phone", life, looked) == "missing"


def test_a_ghost_is_believed_where_a_look_found_nothing(phone):
    life, before, now, looked = phone
    memory, scores = SightingMemory(None, WordEncoder()), Scores()
    memory.update(view([seen("phone", now.position), seen("phone", before.position)], stamp_ns=5))
    score_graph(memory, life, looked, scores)
    assert (scores.count["matched"], scores.count["named right"]) == (1, 1)
    assert (scores.count["outdated nodes"], scores.count["ghosts"]) == (1, 0)
    _look(looked, before.spot, HOUR_NS + 1)
    score_graph(memory, life, looked, scores)
    assert scores.count["ghosts"] == 1 and scores.count["believed"] == 4


def test_a_sight_that_goes_into_the_node_of_another_thing_is_a_false_merge(phone):
    life, _, now, _ = phone
    scores, merges = Scores(), Merges()
    memory = SightingMemory(None, WordEncoder())
    node = memory.update(view([seen("phone", now.position)], stamp_ns=1)).nodes[0]
    for stamp_ns, thing in ((1, "phone"), (2, "phone"), (3, "candle")):
        scene = view([seen("phone", now.position)], stamp_ns=stamp_ns)
        update = replace(memory.update(scene), nodes=(replace(node, last_seen_ns=stamp_ns),))
        merges.note(Sight(scene, (thing,)), update, life, scores)
    assert scores.count["fused"] == 2 and scores.count["fused into another"] == 1


def test_a_memory_that_saw_everything_is_right_about_what_it_saw():
    life, world = lived_in(seed=6)
    inspector = Inspector(world, ModelSense(perfect_record(), WordEncoder()), 6)
    memory, looked, scores = SightingMemory(None, WordEncoder()), Looked(), Scores()
    for spot in life.home.spots:
        sights = inspector.look(spot, life.now_ns + 10)
        looked.note(spot, sights)
        for sight in sights:
            memory.update(sight.scene)
    ask_everything(memory, life, looked, scores, life.now_ns)
    world.close()
    assert scores.count["right"] + scores.count["unknown"] == scores.count["questions"] == 32
    assert scores.count["right"] >= 28 and 0.0 < np.median(scores.error_m) < 0.05


def test_the_nearest_thing_bounds_every_search():
    life, world = lived_in(seed=6)
    none = Searcher(world, life, ModelSense(perfect_record(), WordEncoder()), None, learns=False)
    search = none.fetch("flower vase", life.home.dock, life.now_ns)
    world.close()
    assert search.success and len(set(search.spots)) == len(search.spots)
    assert search.spots[-1] == life.oracle_placements()["flower vase"].spot
    assert search.metres >= oracle_way("flower vase", life.home.dock, life).metres


def test_who_brought_a_thing_knows_that_it_is_not_where_it_was():
    life, world = lived_in(seed=6)
    memory = map_memory(life.home, WordEncoder())
    robot = Searcher(world, life, ModelSense(perfect_record(), WordEncoder()), memory, learns=True)
    found = robot.fetch("flower vase", life.home.dock, life.now_ns)
    goal = next(spot.name for spot in life.home.spots.values() if not spot.closed and spot.name != found.spots[-1])
    life.oracle_carry("flower vase", goal, life.now_ns + HOUR_NS)
    world.arrange(life.oracle_placements())
    robot.bring("flower vase", found.spots[-1], goal, life.now_ns)
    answer = memory.query(FindObject("flower vase", now_ns=life.now_ns + HOUR_NS))
    chances = suggested(answer, "flower vase", life.home)
    memory.close()
    world.close()
    assert chances[goal] > 0.9 and chances.get(found.spots[-1], 0.0) < 0.05


def test_confidences_are_judged_by_hand():
    """Errors 0.1, 0.1, 0.4, 0.6; bins of 0.9 and 0.4: 0.9 said and 1 right, 0.4 said and 0.5 right."""
    told = [(0.9, True), (0.9, True), (0.4, False), (0.4, True)]
    rows = {row["name"]: row["value"] for row in reliability("ours", told)}
    assert rows["ours_brier"] == pytest.approx((0.01 + 0.01 + 0.16 + 0.36) / 4)
    assert rows["ours_brier_knowing_the_mean"] == pytest.approx(0.75 * 0.25, abs=1e-4)
    assert rows["ours_calibration_error"] == pytest.approx((0.2 + 0.2) / 4)


def test_the_fit_is_judged_against_the_real_sensor():
    rows = {row["name"]: row for row in compare(perfect_record(), perfect_record(missed_frame=0), 32)}
    assert rows["sensor_model_detected"]["value"] == pytest.approx(2 / 3, abs=1e-4)
    assert rows["sensor_model_detected"]["met"] is False
    assert rows["sensor_model_named_right"]["met"] is True


def test_exploration_is_held_against_no_memory_and_against_perfect_knowledge():
    """Looks 2, 4 with both memories, 6, 6 with none, 1, 1 if all is known: 3 / 6, and (3 - 1) / (6 - 1) beyond it."""
    looks = {"both": (2, 4), "none": (6, 6), "oracle": (1, 1), "always": (3, 3), "advised": (0, 3), "never": (0, 0)}
    trips = {
        arm: [Trip(f"day {i}", arm != "never", n, 1 + (arm == "none"), float(n)) for i, n in enumerate(counts)]
        for arm, counts in {**{arm: (1, 1) for arm in (*ARMS, *ASKERS)}, **looks}.items()
    }
    rows = {row["name"]: row for row in fetch_figures(trips, limit=3)}
    assert rows["fetch_both_success"]["value"] == 0.5 and rows["fetch_none_success"]["value"] == 0.0
    assert rows["fetch_none_success_within_6_looks"]["value"] == 1.0
    assert rows["fetch_looks_both_over_none"]["value"] == 0.5
    assert rows["fetch_looks_both_over_none"]["interval"] == pytest.approx([1 / 3, 2 / 3], abs=1e-4)
    assert rows["fetch_looks_beyond_oracle_both_over_none"]["value"] == pytest.approx(0.4)
    one_day = {arm: [replace(trip, stream="day 0") for trip in told] for arm, told in trips.items()}
    alone = next(row for row in fetch_figures(one_day, limit=3) if row["name"] == "fetch_looks_both_over_none")
    assert alone["interval"] == pytest.approx([1 / 3, 2 / 3], abs=1e-4)  # of its two tasks
    assert rows["where_advised_metres_over_always"]["value"] == 0.5
    assert rows["where_advised_right_above_never"]["value"] == 1.0


def test_the_best_possible_memory_gives_chances_that_come_true():
    sure, right = [], []
    for seed in (200, 201):
        life = Life(make_home(seed), seed)
        belief = OracleBelief(life)
        for number, hour in itertools.product(range(30), VISIT_HOURS):
            life.advance(number * DAY_NS + hour * HOUR_NS)
            belief.advance(hour, 1.0)
            for (thing, at), chances in zip(life.oracle_placements().items(), belief.chances, strict=True):
                assert life.things[thing].name and chances.min() > -1e-9 and chances.sum() < 1 + 1e-9
                best = int(chances.argmax())
                sure.append(chances[best])
                right.append(at is not None and at.spot == belief.spots[best])
            for spot in belief.spots[::2]:  # half of the spots are never looked at
                belief.look(spot)
    groups = np.digitize(sure, (0.3, 0.5, 0.7, 0.9))
    for group in np.unique(groups):
        mine = groups == group
        assert np.mean(np.array(right)[mine]) == pytest.approx(np.mean(np.array(sure)[mine]), abs=0.06)


def test_the_best_possible_search_lies_between_no_memory_and_perfect_knowledge():
    trips = run_limit(200, FetchBenchmark(rounds=2, streams=1))
    rows = {row["name"]: row for row in limit_figures(trips)}
    for what in ("looks", "rooms", "metres"):
        assert rows[f"fetch_{what}_oracle_over_none"]["value"] <= rows[f"fetch_{what}_limit_over_none"]["value"] < 0.8
    assert rows["fetch_metres_limit_over_none"]["n"] == 20


@pytest.mark.slow
def test_a_small_run_gives_every_figure(tmp_path):
    config = HouseholdBenchmark(homes=1, days=1, camera_day=-1)
    home = run_home(1, config, perfect_record(), WordEncoder(), tmp_path)
    told = {row["name"]: row for row in figures([home])}
    assert told["recall"]["value"] > 0.9
    assert {"stale_answers_ratio", "ghosts", "false_merges", "captions_answers_right"} <= set(told)
    fetching = FetchBenchmark(rounds=0, streams=1, tasks=2)
    trips = finished_home(101, fetching, perfect_record(), WordEncoder(), tmp_path)
    rows = {row["name"]: row for row in fetch_figures(trips, limit=3)}
    assert trips == finished_home(101, fetching, perfect_record(), WordEncoder(), tmp_path)  # read, not run again
    assert rows["fetch_oracle_success"]["value"] == 1.0
    assert rows["fetch_both_success"]["n"] == 2
    assert rows["where_never_metres"]["value"] == 0.0 and rows["where_always_metres"]["value"] > 0.0


@pytest.mark.slow
def test_a_day_under_budgets_gives_every_figure(tmp_path):
    config = WeeksBenchmark(days=1)
    days = live(config, perfect_record(), WordEncoder(), tmp_path)
    told = {row["name"]: row for row in weeks_figures(days, config)}
    assert told["weeks_most_ram_mb"]["met"] and told["weeks_most_disk_mb"]["met"]
    assert told["weeks_right_answers_last_week"]["n"] == days[0]["bounded"]["questions"] == 96
