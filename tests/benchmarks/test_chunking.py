"""The arms of the chunking benchmark are what their names say."""

import json

import pytest

from engram.benchmarks import chunking
from engram.benchmarks.chunking import DELAYS, Arm, ChunkingBenchmark, arms, episodes, measure
from engram.benchmarks.lateness import LateRuntime
from engram.policies.vla.chunking import AdaptiveChunks, TemporalEnsemble
from engram.policies.vla.vla_policy import VlaPolicy
from engram.runtime.loop import Runtime
from engram.sim.world import MujocoWorld, WorldConfig


@pytest.fixture(scope="module")
def world():
    world = MujocoWorld(WorldConfig(profile="none"))
    yield world
    world.close()


def test_every_arm_has_a_name_of_its_own_and_late_ones_decide_equally_often():
    every = arms(0.02)
    assert len({arm.name for arm in every}) == len(every)
    late = [arm for arm in every if arm.late]
    assert {(arm.late, arm.real_time) for arm in late} == {(d, rt) for d in DELAYS for rt in (False, True)}
    assert {arm.execute_steps for arm in late} == {max(DELAYS)}


def test_arms_run_what_their_names_say(world, monkeypatch):
    ran = []
    for runtime in (Runtime, LateRuntime):
        monkeypatch.setattr(runtime, "run_episode", lambda self, *_: ran.append(self) or pytest.fail("enough"))
    for arm in (Arm(4), Arm(8, 0.02), Arm(1, ensemble=True), Arm(8, late=2), Arm(8, late=4, real_time=True)):
        with pytest.raises(pytest.fail.Exception, match="enough"):
            episodes(arm, ChunkingBenchmark(), world)("reach", 0)
    plain, adaptive, mean, late, real_time = ran
    assert [type(run.policy) for run in ran] == [VlaPolicy, AdaptiveChunks, TemporalEnsemble, VlaPolicy, VlaPolicy]
    assert [type(run) for run in ran] == [Runtime] * 3 + [LateRuntime] * 2
    assert (late.delay, late.policy.real_time) == (2, None)
    assert (real_time.delay, real_time.policy.real_time.delay) == (4, 4)
    assert (plain.policy.real_time, adaptive.policy.departure_m, mean.pipeline.executor.lockstep) == (None, 0.02, True)


def test_an_episode_of_other_code_is_run_again(tmp_path, monkeypatch):
    progress = tmp_path / "progress.jsonl"
    config = ChunkingBenchmark(seeds=1, progress=progress)
    ran = []
    monkeypatch.setattr(chunking, "arms", lambda _: [Arm(4)])
    monkeypatch.setattr(chunking, "episodes", lambda *_: lambda task, seed: ran.append(task) or {"success": True})
    list(measure(config))
    found = list(measure(config))
    assert len(ran) == len(found) == len(Arm(4).tasks)
    old = [json.loads(line) | {"code": "older"} for line in progress.read_text().splitlines()]
    progress.write_text("".join(json.dumps(episode) + "\n" for episode in old))
    list(measure(config))
    assert len(ran) == 2 * len(found)
