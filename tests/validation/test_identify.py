"""A record of a robot tells its gap; what it cannot tell stays as it was, and says so."""

import json
from dataclasses import asdict, fields, replace
from functools import partial

import numpy as np
import pytest

from engram.app.cli import main
from engram.core.errors import InvalidInputError, StoreError
from engram.core.robot import PANDA_2F85
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.store import ExperienceStore
from engram.sim.gaps import Gap, get_gap, read_gap
from engram.sim.replica import Replica
from engram.validation import following
from engram.validation import identify as identification
from engram.validation.following import MATTERS, UNTOLD, differing, followed_gap
from engram.validation.identify import (
    ABOUT_BASE_M,
    Estimate,
    Identification,
    IdentificationConfig,
    _with_cameras,
    identify,
    unbroken,
)
from engram.validation.picture_fit import STEPS, Shot, fit_pictures
from engram.validation.picture_noise import noise_between
from engram.validation.robust_fit import Fit, robust_fit
from engram.validation.trials import environment_digest
from tests.validation.records import record

pytestmark = pytest.mark.timeout(300)

TRUE = Gap(
    yaw_deg=-7.0,
    gain=1.15,
    deadband=0.04,
    front_m=(0.01, -0.02, 0.005),
    front_yaw_deg=2.0,
    wrist_m=(0.0, 0.004, 0.0),
    latency_steps=1,
    dropped=0.2,
    damping=2.5,
    brightness=0.8,
    camera_noise=0.03,
)
SMALL = IdentificationConfig(episodes=6, shots=8)
MOVED = replace(PANDA_2F85, cameras=PANDA_2F85.cameras[:1])
"""A Panda with cameras of its own."""
FRONT_M = np.array([1.02, 0.0, 0.78])


@pytest.fixture(autouse=True)
def few_latencies(monkeypatch):
    """Compare two latencies, not six: it is quicker."""
    monkeypatch.setattr(identification, "LATENCIES", (0, 1))


def test_a_record_tells_motions_cameras_light_noise_and_lost_pictures():
    found = identify(record(TRUE, 8), Gap(friction=0.5, limits=0.3), SMALL)
    gap = found.gap
    assert gap.yaw_deg == pytest.approx(TRUE.yaw_deg, abs=0.5)
    assert gap.gain == pytest.approx(TRUE.gain, abs=0.02)
    assert gap.deadband == pytest.approx(TRUE.deadband, abs=0.015)
    assert gap.latency_steps == 1
    assert gap.damping == pytest.approx(TRUE.damping, abs=0.1)
    assert gap.brightness == pytest.approx(TRUE.brightness, abs=0.02)
    assert gap.camera_noise == pytest.approx(TRUE.camera_noise, abs=0.003)
    for name in ("damping", "brightness", "camera_noise"):
        one = found.estimates[name]
        assert one.low < one.value < one.high < one.low + MATTERS[name], name
    np.testing.assert_allclose(gap.front_m, TRUE.front_m, atol=0.004)
    assert gap.front_yaw_deg == pytest.approx(TRUE.front_yaw_deg, abs=0.3)
    np.testing.assert_allclose(gap.wrist_m, TRUE.wrist_m, atol=0.001)
    assert found.estimates["dropped"].low < TRUE.dropped < found.estimates["dropped"].high
    assert (gap.friction, gap.limits) == (0.5, 0.3)
    assert {"friction", "mass", "limits"} == set(found.untold)
    before, after = found.errors["motions_m"]
    assert after < 0.2 * before
    assert found.errors["pictures"][1] < found.errors["pictures"][0]


def test_without_pictures_the_motions_are_told_all_the_same():
    found = identify(record(Gap(latency_steps=1), 4, steps=12, image_size=0), config=SMALL)
    assert found.gap.latency_steps == 1
    assert "no pictures" in found.untold["cameras"] and "dropped" not in found.estimates
    assert "no pictures" in found.untold["brightness"] and "no two pictures" in found.untold["camera_noise"]
    assert (found.gap.brightness, found.gap.camera_noise) == (1.0, 0.0)


@pytest.mark.parametrize(
    "true",
    [
        Gap(latency_steps=1),
        Gap(damping=5.0, gain=0.8),
        Gap(damping=10.0, latency_steps=1, gain=1.3, yaw_deg=10.0, deadband=0.05),
    ],
)
def test_a_damped_arm_is_told_from_one_that_is_late_or_goes_less_far(true):
    found = identify(record(true, 5, steps=12, image_size=0), config=SMALL).gap
    assert found.latency_steps == true.latency_steps
    for name in ("damping", "gain", "deadband", "yaw_deg"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), abs=MATTERS[name]), name


def shots_of(gap, count, robot=PANDA_2F85, table=None):
    """Return ``count`` shots of an arm at an empty table, painted ``table``, each from an episode of its own."""
    replica, rng = Replica(robot, 128), np.random.default_rng(0)
    replica.become(gap)
    if table is not None:
        replica.model.geom("table_fixed").rgba[:3] = table
    shots = []
    for number in range(count):
        arm = np.array(robot.home) + rng.uniform(-0.2, 0.2, len(robot.home))
        state = np.concatenate((np.zeros(7), [0.0], arm))
        shots.append(Shot(number, state, replica.put(replica.place(state))))
    replica.close()
    return shots


@pytest.mark.parametrize("brightness", [0.35, 1.25])
def test_cameras_are_found_by_another_lamp(brightness):
    true = Gap(front_m=(0.01, -0.02, 0.005), front_yaw_deg=2.0, wrist_m=(0.0, 0.004, 0.0), brightness=brightness)
    found = fit_pictures(shots_of(true, 6), PANDA_2F85)
    assert found.why_not == ""
    assert found.brightness.values == pytest.approx(brightness, rel=0.03)
    np.testing.assert_allclose(found.fit.values / STEPS, [1.0, -2.0, 0.5, 2.0, 0.0, 4.0 / 3.0, 0.0], atol=0.3)


def test_another_table_is_no_other_lamp():
    found = fit_pictures(shots_of(Gap(), 4, table=(0.7, 0.68, 0.65)), PANDA_2F85)  # darker by a tenth
    assert found.brightness.values == pytest.approx(1.0, abs=0.01)


def test_noise_is_told_from_motion_and_from_what_is_too_bright_to_show_it():
    rng, scene = np.random.default_rng(0), np.full((96, 96, 3), 120.0)
    scene[:, 60:] = 255.0  # as bright as can be: half of the noise is cut off
    moved = scene.copy()
    moved[20:40, 10:30] += 100.0

    def taken(what, sd):
        return np.rint(what + 255.0 * sd * rng.standard_normal(what.shape)).clip(0, 255).astype(np.uint8)

    for sd in (0.0, 0.01, 0.05, 0.1):
        assert noise_between(taken(scene, sd), taken(moved, sd)) == pytest.approx(sd, rel=0.1), sd


def test_pictures_of_something_else_tell_nothing_of_the_cameras(monkeypatch):
    monkeypatch.setattr(identification, "LATENCIES", (0,))
    rng = np.random.default_rng(0)
    noisy = [
        [replace(s, images={n: rng.integers(0, 256, im.shape, np.uint8) for n, im in s.images.items()}) for s in run]
        for run in record(Gap(), 4, steps=10)
    ]
    found = identify(noisy, Gap(front_m=(0.0, 0.03, 0.0)), replace(SMALL, shots=4))
    assert "look otherwise" in found.untold["cameras"] and "look otherwise" in found.untold["brightness"]
    assert found.gap.brightness == 1.0
    assert found.gap.front_m == (0.0, 0.03, 0.0)  # as it was


def test_too_little_or_another_robots_record_is_refused():
    with pytest.raises(InvalidInputError, match=r"0 unbroken runs .* in 0 episodes, expected 4 or more"):
        identify([])
    other = [[replace(step, state=step.state[:-1]) for step in run] for run in record(Gap(), 4, image_size=0)]
    with pytest.raises(InvalidInputError, match=rf"states of \[14\] numbers, {PANDA_2F85.name} has 15"):
        identify(other)
    with pytest.raises(InvalidInputError, match=r"IdentificationConfig\.shots: 3, expected 4 or more"):
        IdentificationConfig(shots=3)


def test_a_missing_step_and_another_kind_of_action_break_a_run():
    (steps,) = record(Gap(), 1, steps=10, image_size=0)
    joint = replace(steps[2], executed_action=np.zeros(8, np.float32))
    parts = list(unbroken((*steps[:2], joint, *steps[3:6], *steps[7:])))
    assert [len(part) for part in parts] == [2, 3, 3]


def test_a_camera_that_turned_about_the_base_is_a_robot_that_stands_turned():
    def seen(turned_deg, off=0.0):
        angle = np.radians(-turned_deg)
        turn = np.array([[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0], [0.0, 0.0, 1.0]])
        aside = turn @ FRONT_M - FRONT_M + (0.0, off, 0.0)
        values = np.array([*aside, -turned_deg, 0.0, 0.001, 0.0])
        return _with_cameras(Gap(), Fit(values, np.full(7, 0.1), 0.0, 0.0, 0.0), FRONT_M)

    gap, found = seen(5.0)
    assert gap.mounted_deg == pytest.approx(5.0) and gap.front_m == (0.0, 0.0, 0.0)
    assert found["mounted_deg"] == Estimate(5.0, pytest.approx(4.9), pytest.approx(5.1)) and "front_m.x" not in found
    gap, found = seen(5.0, 1.5 * ABOUT_BASE_M)
    assert gap.mounted_deg == 0.0 and gap.front_yaw_deg == pytest.approx(-5.0) and "mounted_deg" not in found


def test_outliers_hardly_move_a_fit_and_its_interval_covers_the_truth():
    rng, covered = np.random.default_rng(0), 0
    for _ in range(40):
        x = rng.uniform(-1, 1, (12, 20))
        y = 2.0 * x - 1.0 + 0.05 * rng.standard_normal(x.shape) + 0.1 * rng.standard_normal((12, 1))
        y[:, 0] += rng.choice((-1.0, 1.0), 12)
        fit = robust_fit(lambda at, x=x, y=y: list(at[0] * x + at[1] - y), (0.0, 0.0), (0.5, 0.5), 0.05)
        np.testing.assert_allclose(fit.values, (2.0, -1.0), atol=0.1)
        covered += abs(fit.values[1] + 1.0) < fit.half[1]
    assert covered >= 34  # of 40 intervals of 95 %
    assert fit.after < fit.before


def test_nothing_is_simulated_twice_for_a_fit():
    asked = []

    def residuals(at):
        asked.append(tuple(at))
        return [at[0] ** 2 + at[1] - np.arange(4.0), at[0] - at[1] + np.arange(3.0)]

    fit = robust_fit(residuals, (0.3, 0.2), (0.1, 0.1), 1.0)
    assert fit.after < fit.before and len(asked) > 10
    assert len(set(asked)) == len(asked)


def test_too_few_groups_give_no_interval():
    fit = robust_fit(lambda at: [at - 1.0], (0.0,), (0.5,), 1.0)
    assert fit.values == pytest.approx(1.0, abs=1e-3) and np.isinf(fit.half).all()


def test_every_value_of_a_gap_is_told_by_a_record_or_stays_as_it_was_told():
    assert set(MATTERS) | set(UNTOLD) == {field.name for field in fields(Gap)}
    assert not set(MATTERS) & set(UNTOLD)
    assert differing(Gap(), Gap(damping=1.2, brightness=0.9, camera_noise=0.02)) == "damping, brightness, camera_noise"
    assert differing(Gap(), Gap(damping=1.05, brightness=0.99, camera_noise=0.005)) == ""


# -- the file, and who follows it ------------------------------------------------------------------------------------


def test_a_file_says_which_robot_a_gate_simulates(tmp_path):
    path = tmp_path / "gap.json"
    Identification(Gap(yaw_deg=4.0, wrist_m=(0.0, 0.001, 0.0)), {}).write(path, episode=3)
    assert get_gap(str(path)) == Gap(yaw_deg=4.0, wrist_m=(0.0, 0.001, 0.0))
    before = environment_digest(str(path))
    Identification(Gap(yaw_deg=5.0), {"yaw_deg": Estimate(5.0, -np.inf, np.inf)}).write(path)
    assert '"low": null' in path.read_text() and "Infinity" not in path.read_text()
    assert environment_digest(str(path)) != before


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("{", "no gap can be read there"),
        ('{"gap": 3}', "no gap can be read there"),
        ('{"found": {}}', "no gap can be read there"),
        ('{"gap": {}, "found": 3}', "no gap can be read there"),
        ('{"gap": {}, "found": {"robot": "my_robot:ARM"}}', "a gap from my_robot:ARM, expected one from panda_2f85"),
        ('{"gap": {"yaw": 3}}', "unknown value of a gap 'yaw'"),
        ('{"gap": {"yaw_deg": "3"}}', r"Gap\.yaw_deg: '3', expected a number"),
        ('{"gap": {"front_m": [1, 2]}}', r"Gap\.front_m: \(1, 2\), expected three numbers"),
        ('{"gap": {"wrist_m": 0.1}}', r"Gap\.wrist_m: 0\.1, expected three numbers"),
        ('{"gap": {"gain": NaN}}', r"Gap\.gain: nan, expected a number from 0\.01 to 100"),
        ('{"gap": {"latency_steps": 0.5}}', r"Gap\.latency_steps: 0\.5, expected a whole number from 0 to 1000"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, told, why):
    path = tmp_path / "gap.json"
    path.write_text(told)
    with pytest.raises(InvalidInputError, match=rf"gap\.json: .*{why}"):
        read_gap(path)


def stored(folder, episodes):
    """Keep ``episodes`` in ``folder``, and keep on writing it."""
    store = ExperienceStore(folder)
    for steps in episodes:
        store.append([*steps[:-1], replace(steps[-1], truncated=True)])
        store.commit()
    return store


def test_the_gap_is_read_beside_the_learner_that_writes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(identification, "LATENCIES", (0,))
    store = stored(tmp_path / "experience", record(Gap(gain=1.2), 4, steps=12, image_size=0))
    assert len(list(ExperienceReader(tmp_path / "experience").episodes())) == 4
    assert main(["identify", "--learner", str(tmp_path), "--besides", "careful"]) == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    store.close()
    assert told["gap"]["gain"] == pytest.approx(1.2, abs=0.02) and told["gap"]["limits"] == 0.3
    assert json.loads(json.dumps(asdict(get_gap(told["kept"])))) == told["gap"]


def test_the_gap_from_a_configuration_of_your_own_is_none_that_a_gate_simulates(tmp_path, capsys, monkeypatch):
    shipped, mine = tmp_path / "gate" / "gap.json", tmp_path / "mine.json"
    Identification(Gap(gain=1.3), {}).write(shipped)
    monkeypatch.setattr(following, "identify", lambda *_: Identification(Gap(front_m=(0.1, 0.0, 0.0)), {}))
    stored(tmp_path / "experience", record(Gap(), 1, steps=3, image_size=0)).close()
    words = ["identify", "--learner", str(tmp_path), "--robot", f"{__name__}:MOVED"]
    for more in ((), ("--output", str(tmp_path / "experience" / ".." / "gate" / "gap.json"))):
        assert main([*words, *more]) == 2
        told = capsys.readouterr().err
        assert "--output: the learner's gate reads " in told and f"file for the gap from {__name__}:MOVED" in told
    assert get_gap(str(shipped)) == Gap(gain=1.3)
    assert main([*words, "--output", str(mine)]) == 0
    assert json.loads(mine.read_text())["gap"]["front_m"] == [0.1, 0.0, 0.0]
    with pytest.raises(InvalidInputError, match=rf"mine\.json: a gap from {__name__}:MOVED, expected one from panda"):
        get_gap(str(mine))
    assert main(words[:3]) == 0 and get_gap(str(shipped)) == Gap(front_m=(0.1, 0.0, 0.0))


def test_of_several_robots_the_one_that_worked_last_is_told(tmp_path, monkeypatch):
    store = stored(tmp_path, record(Gap(), 3, steps=3, image_size=0))
    for steps in record(Gap(), 2, steps=3, image_size=0):
        store.append([replace(step, robot_id="other") for step in ended(steps)])
        store.commit()
    seen = []
    monkeypatch.setattr(following, "identify", lambda episodes, *_: seen.extend(episodes))
    _, last = following.identify_stored(tmp_path, Gap())
    store.close()
    assert ({step.robot_id for steps in seen for step in steps}, len(seen), last) == ({"other"}, 2, 5)


def test_what_cannot_be_identified_is_refused_by_name(tmp_path, capsys):
    for words, why in (
        ([], "name a folder of experience, or a learner's"),
        ([str(tmp_path)], "experience.sqlite: no experience is stored there"),
        ([str(tmp_path), "--besides", "odd"], "unknown gap 'odd'"),
        ([str(tmp_path), "--shots", "1"], "--shots: 1, expected 4 or more"),
        ([str(tmp_path), "--robot", "odd"], "unknown robot 'odd'"),
        (
            [str(tmp_path), "--output", str(tmp_path.parent)],
            f"--output: {tmp_path.parent} is a folder, expected a file",
        ),
        ([str(tmp_path), "--output", str(tmp_path / "experience.sqlite")], "lies in the experience "),
    ):
        assert main(["identify", *words]) == 2
        assert why in capsys.readouterr().err
    with pytest.raises(StoreError, match="no experience is stored there"):
        ExperienceReader(tmp_path)


def found_at(*gaps):
    """Return what finds these gaps, one after the other, and notes with what it began."""
    asked = []

    def find(experience, start):
        asked.append(start)
        return Identification(replace(gaps[len(asked) - 1], limits=start.limits), {"gain": Estimate(1.0, 0.9, 1.1)}), (
            ExperienceReader(experience).catalogue()[-1].number
        )

    return find, asked


def test_the_gates_simulation_follows_the_robot(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "AGAIN", 2)
    told, folder = [], tmp_path / "gate"
    store = stored(tmp_path / "experience", record(Gap(), 3, steps=3, image_size=0))
    near = Gap(yaw_deg=4.4)
    find, asked = found_at(Gap(yaw_deg=4.0), near, Gap(yaw_deg=9.0))

    def follow():
        return get_gap(followed_gap(folder, tmp_path / "experience", "careful", told.append, find))

    def work(boot):
        store.append([replace(s, boot_id=boot) for run in record(Gap(), 2, steps=3, image_size=0) for s in ended(run)])
        store.commit()

    first = follow()
    assert first == Gap(yaw_deg=4.0, limits=0.3) and "the robot's gap: gain 1" in told[0]
    assert follow() == first and len(asked) == 1  # nothing new was recorded
    work("1")
    assert follow() == first and len(asked) == 2  # it is about the same: what was tried stays valid
    assert len(told) == 1 and differing(first, near) == "" == differing(first, first)
    work("2")
    assert follow().yaw_deg == 9.0 and "has changed (yaw_deg)" in told[1]
    find, asked = found_at(Gap(yaw_deg=9.1))  # whoever raises its limits says so to the gate
    assert get_gap(followed_gap(folder, tmp_path / "experience", "none", told.append, find)) == Gap(yaw_deg=9.1)
    store.close()


def test_in_another_store_the_gap_is_looked_for_anew(tmp_path):
    told, folder = [], tmp_path / "gate"
    find, asked = found_at(Gap(yaw_deg=4.0), Gap(yaw_deg=9.0))

    def follow():
        return get_gap(followed_gap(folder, tmp_path / "experience", "careful", told.append, find)).yaw_deg

    stored(tmp_path / "experience", record(Gap(), 3, steps=3, image_size=0)).close()
    assert (follow(), follow(), len(asked)) == (4.0, 4.0, 1)
    (tmp_path / "experience").rename(tmp_path / "moved")
    stored(tmp_path / "experience", record(Gap(), 2, steps=3, image_size=0)).close()
    assert (follow(), follow(), len(asked)) == (9.0, 9.0, 2)
    assert told[1] == "the robot's gap is looked for anew: the learner's experience is another store than before"


def ended(steps):
    """Return ``steps`` as an episode that is over."""
    return [*steps[:-1], replace(steps[-1], truncated=True)]


def test_a_gate_without_a_record_simulates_what_it_was_told(tmp_path):
    told = []
    assert followed_gap(tmp_path, tmp_path / "experience", "careful", told.append) == "careful"
    store = stored(tmp_path / "experience", record(Gap(), 2, steps=3, image_size=0))
    assert followed_gap(tmp_path, tmp_path / "experience", "careful", told.append) == "careful"
    store.close()
    assert "was not looked for" in told[0] and "cannot be told yet" in told[1]


def test_a_damaged_file_is_found_anew_and_a_full_disk_keeps_what_there_was(tmp_path, monkeypatch):
    told, folder = [], tmp_path / "gate"
    folder.mkdir()
    (folder / "gap.json").write_text('{"gap": {"gain": -3}}')
    store = stored(tmp_path / "experience", record(Gap(), 2, steps=3, image_size=0))
    find, _ = found_at(Gap(yaw_deg=4.0), Gap(yaw_deg=9.0))
    follow = partial(followed_gap, folder, tmp_path / "experience", "careful", told.append, find)
    assert get_gap(follow()).yaw_deg == 4.0
    assert "looked for anew" in told[0] and "Gap.gain: -3" in told[0]

    def full(self, path, **about):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(following, "AGAIN", 0)
    monkeypatch.setattr(Identification, "write", full)
    assert get_gap(follow()).yaw_deg == 4.0
    store.close()
    assert "No space left on device" in told[-1]
