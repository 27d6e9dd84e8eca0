import numpy as np
import pytest

from engram.core.geometry import rotation
from engram.sim.household.camera_sense import CameraSense, oracle_match
from engram.sim.household.kinds import BY_NAME
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import EXACT, SensorRecord, features, join, record_looks
from engram.sim.household.tour import Inspector, views_of
from engram.sim.household.world import Placement, camera_intrinsics
from tests.memory.scenes import WordEncoder, seen
from tests.sim.household.homes import ERROR, lived_in, perfect_record


@pytest.fixture(scope="module")
def scene():
    life, world = lived_in()
    yield life, world
    world.close()


def _drawer(world):
    return next(spot for spot in world.home.spots.values() if spot.kind == "drawer")


def _table(world):
    return next(spot for spot in world.home.spots.values() if not spot.closed)


def _alone(world, spot, thing="red mug", other=None):
    """Put one thing in the middle of ``spot`` (and another in front of it)."""
    kind = BY_NAME[thing]
    placements = {thing: Placement(spot.name, spot.to_map([0.0, 0.0, 0.5 * kind.size[2]]))}
    if other:
        size = BY_NAME[other].size
        placements[other] = Placement(spot.name, spot.to_map([-0.09, 0.0, 0.5 * size[2]]))
    world.arrange(placements)


@pytest.mark.render
def test_rays_measure_what_the_renderer_draws(scene):
    _, world = scene
    world.drive(_table(world).stop)
    depth = world.render(0).depth
    rows, columns = np.mgrid[6:192:12, 6:256:12]
    k = camera_intrinsics()
    rays = np.stack(((columns + 0.5 - k[0, 2]) / k[0, 0], (rows + 0.5 - k[1, 2]) / k[1, 1], np.ones(rows.shape)), -1)
    distance, _ = world.cast(rays.reshape(-1, 3) @ rotation(world.oracle_eye()).as_matrix().T)
    assert np.mean(np.abs(distance.reshape(rows.shape) - depth[rows, columns]) < 0.01) > 0.97


def test_a_closed_drawer_hides_what_an_open_one_shows(scene):
    _, world = scene
    spot = _drawer(world)
    _alone(world, spot)
    world.open(None)
    _, hidden = features(world, spot, ["red mug"], views_of(spot))
    world.open(spot.name)
    _, shown = features(world, spot, ["red mug"], views_of(spot))
    assert hidden.max() == 0.0 and shown.min() > 0.8


def test_what_stands_in_front_hides_part_of_it(scene):
    _, world = scene
    spot = _table(world)
    _alone(world, spot, "remote control")
    told, _ = features(world, spot, ["remote control"], views_of(spot))
    _alone(world, spot, "remote control", other="wine bottle")
    behind, _ = features(world, spot, ["remote control"], views_of(spot))
    assert told[0, 0] == 1.0 and behind[0, 0] < 0.8
    assert told[0, 2] == 0.2 and behind[0, 2] == pytest.approx(0.09 - 0.07)


def test_the_model_replays_recorded_errors_and_misses(scene):
    _, world = scene
    spot = _table(world)
    _alone(world, spot)
    model = ModelSense(perfect_record(missed_frame=1), WordEncoder(), seed=0)
    sights = Inspector(world, model, 0, EXACT).look(spot.name, 1000)
    assert [sight.oracle_things for sight in sights] == [("red mug",), (), ("red mug",)]
    found = sights[0].scene.objects[0]
    assert found.label == "red mug"
    expected = world.oracle_positions(spot.name)["red mug"] + spot.axes() @ ERROR
    np.testing.assert_allclose(found.pose.position, expected, atol=1e-9)
    assert sights[0].scene.camera_pose.frame == found.pose.frame == "map"


def test_the_robots_own_error_shifts_everything_in_a_frame_alike(scene):
    _, world = scene
    spot = _table(world)
    _alone(world, spot)
    model = ModelSense(perfect_record(), WordEncoder(), seed=0)
    sights = Inspector(world, model, 3).look(spot.name, 1000)
    expected = world.oracle_positions(spot.name)["red mug"] + spot.axes() @ ERROR
    off = np.array([sight.scene.objects[0].pose.position - expected for sight in sights])
    assert 0.0 < np.linalg.norm(off, axis=1).max() < 0.06
    assert np.linalg.norm(off.mean(axis=0)) > np.linalg.norm(off.std(axis=0))


@pytest.mark.render
def test_rendered_frames_find_and_name_what_is_on_the_table(scene):
    _, world = scene
    spot = _table(world)
    _alone(world, spot)
    sights = Inspector(world, CameraSense(WordEncoder(), seed=0), 0, EXACT).look(spot.name, 1000)
    found = [one for sight in sights for one in sight.scene.objects]
    assert len(found) >= 2 and {one.label for one in found} == {"red mug"}
    true = world.oracle_positions(spot.name)["red mug"]
    assert max(np.linalg.norm(one.pose.position - true) for one in found) < 0.02


@pytest.mark.render
def test_a_record_of_rendered_looks_is_written_read_and_joined(scene, tmp_path):
    life, world = lived_in(seed=11)
    record = record_looks(world, life, Inspector(world, CameraSense(WordEncoder()), 0, EXACT), [life.now_ns + 1000])
    world.close()
    assert len(record.looks) == len(world.home.spots)
    assert record.seen.mean() > 0.6 and record.error[record.seen].std() < 0.05
    record.save(tmp_path / "record.npz")
    stored = SensorRecord.load(tmp_path / "record.npz")
    np.testing.assert_array_equal(stored.error, record.error)
    both = join([record, stored])
    assert len(both.looks) == 2 * len(record.looks) and len(both.shape) == 2 * len(record.shape)


def test_each_thing_is_matched_once():
    truth = {"red mug": np.zeros(3), "plate": np.array([0.06, 0.0, 0.0])}
    found = [seen("red mug", (0.01, 0, 0)), seen("plate", (0.02, 0, 0)), seen("sponge", (0.5, 0, 0))]
    assert oracle_match(found, truth) == ("red mug", "plate", None)
