"""Robots are drawn as they are told to be, errors are those of what the robot sees, and ranks are compared."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engram.benchmarks import identification
from engram.benchmarks.identification import FRONT_M, TWIN, IdentificationBenchmark, main, off, policies, robots
from engram.benchmarks.results_learning import IDENTIFIED
from engram.core.robot import PANDA_2F85
from engram.sim.gaps import GAPS, Gap


def test_robots_are_those_with_names_drawn_ones_and_the_twin():
    found = robots()
    assert found == robots() and set(GAPS) | {TWIN} < set(found) and len(found) == len(GAPS) + 7
    assert sum(gap.mounted_deg > 0 and name.startswith("drawn") for name, gap in found.items()) == 2
    drawn = [gap for name, gap in found.items() if name == TWIN or name.startswith("drawn")]
    assert all(gap.damping != 1.0 and gap.brightness != 1.0 and gap.camera_noise > 0.0 for gap in drawn)
    assert len(policies()) == 20
    (front,) = (camera for camera in PANDA_2F85.cameras if camera.name == "front")
    np.testing.assert_allclose(FRONT_M, front.position)


def test_the_front_cameras_error_is_told_as_the_robot_sees_it():
    turned = Gap(mounted_deg=4.0)
    assert off(turned, turned) == dict.fromkeys(identification.MATTERS, 0.0)
    assert off(turned, Gap())["front_m"] == pytest.approx(2 * 1.02 * np.sin(np.radians(2.0)), rel=1e-6)
    assert off(turned, Gap())["front_yaw_deg"] == pytest.approx(4.0)


def test_every_value_has_its_own_error():
    far = off(Gap(damping=1.5, brightness=0.8, camera_noise=0.03), Gap())
    assert {what: error for what, error in far.items() if error} == pytest.approx(
        {"damping": 0.5, "brightness": 0.2, "camera_noise": 0.03}
    )


def test_ranks_of_policies_are_compared_with_the_twins_and_what_is_done_is_kept(tmp_path, monkeypatch):
    done = []

    def told(job):
        done.append(job)
        if job.robot:
            gap = robots()[job.robot]
            return job, {"true": identification.asdict(gap), "found": identification.asdict(replace(gap, gain=1.0))}
        quality = list(policies()).index(job.policy)
        right = {TWIN: quality, "with its gap": quality, "as it is": -quality}[job.place]
        assert job.gap == (replace(robots()[TWIN], gain=1.0) if job.place == "with its gap" else Gap())
        return job, {"successes": 6 + right, "n": 12}

    monkeypatch.setattr(identification, "run_spawned", lambda function, jobs, workers: map(told, jobs))
    main(IdentificationBenchmark(quick=True, work=tmp_path, output=tmp_path / "found.json"))
    report = json.loads((tmp_path / "found.json").read_text())
    figures = {row["name"]: row for row in report["figures"]}
    assert (figures["rank_correlation_before"]["value"], figures["rank_correlation_after"]["value"]) == (-1.0, 1.0)
    assert figures["identification_gain_largest_error"]["met"] is False
    assert figures["identification_yaw_deg_largest_error"]["value"] == 0.0
    assert {f"identification_{what}_median_error" for what in IDENTIFIED} < set(figures)
    assert len(done) == 2 + 4 * 3
    job = identification.Job(IdentificationBenchmark(work=tmp_path), robot="turned")
    job.kept.write_text('{"told": 1}')
    assert identification.answer(job)[1] == {"told": 1}
