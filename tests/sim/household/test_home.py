import itertools
from collections import Counter

import numpy as np
import pytest

from engram.sim.household.kinds import BY_NAME, KINDS, name_of
from engram.sim.household.layout import REACH_M, make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, TWINS, VISIT_HOURS, Life
from engram.sim.household.tour import map_nodes, route

SEEDS = range(6)


def test_thirty_kinds_are_told_apart_by_their_looks():
    assert len(KINDS) >= 30
    assert {name_of(f"{kind.color} {kind.shape}") for kind in KINDS} == {kind.name for kind in KINDS}
    assert name_of("gray drawer") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_every_home_has_four_rooms_and_things_to_open(seed):
    home = make_home(seed)
    assert len(home.rooms) >= 4
    assert any(spot.closed for spot in home.spots.values())
    for spot in home.spots.values():
        assert home.room_of(spot.centre) == home.room_of(spot.stop) == spot.room
        slots = spot.to_map(np.column_stack((spot.slots, np.full(len(spot.slots), 0.05))))
        assert spot.holds(slots).all()
        np.testing.assert_allclose(spot.to_local(spot.to_map([0.1, -0.2, 0.3])), [0.1, -0.2, 0.3], atol=1e-12)
        assert np.linalg.norm(spot.stop[:2] - spot.centre[:2]) == pytest.approx(REACH_M)


def test_furniture_does_not_overlap():
    for seed in SEEDS:
        spots = list(make_home(seed).spots.values())
        grids = {
            s.name: s.to_map([[x * s.depth / 2, y * s.width / 2, 0.0] for x in (-1, 0, 1) for y in (-1, 0, 1)])
            for s in spots
        }
        for one in spots:
            for other in spots:
                inside = np.abs(one.to_local(grids[other.name])[:, :2]) < np.array([one.depth, one.width]) / 2 - 1e-6
                assert one is other or not inside.all(axis=1).any(), (seed, one.name, other.name)


def test_the_way_to_the_next_room_leads_through_the_door():
    home = make_home(0)
    (one, other), door = next(iter(home.doors.items()))
    start, goal = home.rooms[one] + 1.0, home.rooms[other] + 1.0
    by_hand = np.linalg.norm(start - door) + np.linalg.norm(goal - door)
    assert home.metres(start, goal) == pytest.approx(by_hand)
    assert home.metres(start, start + 0.5) == pytest.approx(np.sqrt(0.5))


def test_a_round_visits_every_stop_once():
    home = make_home(1)
    assert sorted(route(home, home.dock, home.spots)) == sorted(home.spots)


def test_the_map_has_every_room_and_piece_of_furniture():
    home = make_home(2)
    layers = Counter(node.layer for node in map_nodes(home))
    assert layers == {"room": len(home.rooms), "place": len(home.spots)}
    assert {node.pose.frame for node in map_nodes(home)} == {"map"}


@pytest.fixture(scope="module")
def lived():
    life = Life(make_home(3), 3)
    for day in range(20):
        for hour in VISIT_HOURS:
            life.advance(day * DAY_NS + hour * HOUR_NS)
    return life


def test_the_facts_of_a_thing_follow_each_other_without_gaps(lived):
    assert set(lived.things) == {kind.name for kind in KINDS} | {f"second {name}" for name in TWINS}
    for thing in lived.things:
        facts = lived.oracle_facts(thing)
        assert facts[0].since_ns == 0 and facts[-1].until_ns is None
        assert all(a.until_ns == b.since_ns for a, b in itertools.pairwise(facts))
        for fact in facts:
            assert fact.holds_at(fact.since_ns) and lived.oracle_fact(thing, fact.since_ns) == fact


def test_no_two_things_share_a_place_at_any_time(lived):
    for stamp_ns in range(0, lived.now_ns, 5 * HOUR_NS):
        places = [at.position[:2] for at in lived.oracle_placements(stamp_ns).values() if at is not None]
        apart = np.linalg.norm(np.array(places)[:, None] - np.array(places)[None], axis=2)
        assert apart[np.triu_indices(len(places), 1)].min() > 0.08


def test_things_move_as_often_as_their_kind_says(lived):
    moves = {thing: len(lived.oracle_facts(thing)) - 1 for thing in lived.things}
    assert all(moves[kind.name] == 0 for kind in KINDS if kind.mobility == "fixed")
    restless = [moves[kind.name] for kind in KINDS if kind.mobility == "restless" and not kind.carried]
    rare = [moves[kind.name] for kind in KINDS if kind.mobility == "rare" and not kind.carried]
    assert np.mean(restless) > 3 * np.mean(rare) > 0


def test_what_is_carried_is_out_at_noon_and_back_in_the_evening(lived):
    noon = [lived.oracle_fact("phone", d * DAY_NS + 14 * HOUR_NS).placement for d in range(20)]
    evening = [lived.oracle_fact("phone", d * DAY_NS + 20 * HOUR_NS).placement for d in range(20)]
    assert sum(at is None for at in noon) > 8
    assert sum(at is None for at in evening) <= 2


def test_the_same_seed_lives_the_same_days():
    one, other = (Life(make_home(4), 4) for _ in range(2))
    for life in (one, other):
        life.advance(9 * HOUR_NS)
    assert str(one.oracle_placements()) == str(other.oracle_placements())


def test_the_robot_puts_a_thing_where_it_carries_it():
    life = Life(make_home(5), 5)
    spot = next(iter(life.home.spots))
    life.oracle_carry("phone", spot, 5)
    placement = life.oracle_placements()["phone"]
    assert placement.spot == spot and life.home.spot_of(placement.position) == spot
    assert life.things["phone"] is BY_NAME["phone"]
