"""A policy of LeRobot's behind learner, gate and robot: a correction that practice found is all that travels."""

import pytest

from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionSource
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner_config import LearnerConfig
from engram.learning.practised import Findings, FoundCorrection, Practised
from engram.learning.workspace import PRACTICE, open_workspace
from engram.policies.loading import load_policy
from engram.runtime.health import Health
from engram.runtime.learner_session import LearnerSession
from engram.runtime.parameters.learner import LearnerNodeConfig
from engram.runtime.policy_runner import check_lineage
from engram.validation import standing
from engram.validation.of_learner import contender, learner_contenders
from engram.validation.practising import Done
from engram.validation.standing import StandingGate
from engram.validation.trials import FIRST_SEED, _ready, run_trial
from tests.learning.transitions import episode
from tests.policies.tiny_lerobot import save_tiny
from tests.validation.test_standing import Told, asked, until

pytestmark = pytest.mark.timeout(300)
HALF = MotionCorrection(scale=0.5)


class Robots:
    """Hear what the learner says."""

    def __init__(self):
        self.announced = []

    def acknowledge(self, receipt):
        pass

    def announce(self, data, manifest, signature):
        self.announced.append((data, manifest))


@pytest.fixture
def act(tmp_path):
    return save_tiny("act", tmp_path / "act", state=15, side=128)


@pytest.fixture
def opened(act, tmp_path):
    """The session of a learner that begins with ``act``, its robots and its health."""
    policy, robots, health = load_policy(act), Robots(), Health()
    store = ExperienceStore(tmp_path / "experience")
    workspace = open_workspace(tmp_path, store, policy, "behavior_cloning", LearnerConfig(updates_per_episode=0))
    config = LearnerNodeConfig(robot_id="panda", promote="manual")
    session = LearnerSession(config, store, workspace, None, robots, health)
    session.begin()
    yield session, robots, health
    session.end()
    store.close()
    session.close()


def practised(folder, policy, *found):
    store = ExperienceStore(folder / PRACTICE)
    source = ActionSource("act", policy.lineage.id)
    for number in range(len(found)):
        store.append(episode(number, robot="practice", boot="0", source=source))
    store.commit()
    store.close()
    told = tuple(FoundCorrection(task, one, (number,)) for number, (task, one) in enumerate(found, 1))
    Practised(folder / PRACTICE).tell(Findings(1, told))


def test_what_practice_found_is_offered_tried_driven_and_rolled_back(act, opened, tmp_path):
    (session, robots, health), policy = opened, load_policy(act)
    practised(tmp_path, policy, ("reach", HALF), ("stack", HALF))
    session.train(lambda: True)
    (_, manifest), *_ = robots.announced
    assert (manifest.stage, session.driving) == ("candidate", policy.version)
    session.show()
    trains = health.condition("active").values["trains"]
    assert trains.startswith(
        f"nothing of successes: {policy.version}: a policy of type act is frozen, and practises by"
    )

    version, candidate, drives = learner_contenders(tmp_path, contender(act))
    assert version == manifest.version and candidate.key != drives.key
    for who, correction in ((candidate, HALF), (drives, MotionCorrection())):
        assert run_trial(who, "reach", FIRST_SEED).steps > 10
        assert _ready(who, 1.0)[0].policy.motion_edit.correction == correction

    session.promote("", "test")
    data, approved = robots.announced[-1]
    assert approved.version == session.driving == version and len(data) < 1000
    check_lineage(policy, approved.lineage, approved.version)
    (tmp_path / "received.safetensors").write_bytes(data)
    policy.load_weights(tmp_path / "received.safetensors", approved.version)
    assert policy.motion_edit.correction == HALF
    first = session.roll_back("", "test")
    (tmp_path / "received.safetensors").write_bytes(robots.announced[-1][0])
    policy.load_weights(tmp_path / "received.safetensors", first)
    assert policy.motion_edit.correction == MotionCorrection() and policy.version == load_policy(act).version


def test_corrections_that_disagree_are_told_and_make_no_candidate(act, opened, tmp_path):
    session, robots, health = opened
    practised(tmp_path, load_policy(act), ("reach", HALF), ("stack", MotionCorrection(yaw_rad=0.3)))
    session.train(lambda: True)
    session.show()
    told = health.condition("active").values["what practice found is not learnt"]
    assert "a correction holds for all of its goals, and 2 were found that disagree: times 0.50; turned by 17" in told
    assert not robots.announced


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_policy_practises_one_correction_of_all_tasks(frozen, act, tmp_path, monkeypatch):
    jobs = []

    def note(_, job, **how):
        jobs.append(job)
        return Done()

    monkeypatch.setattr(standing, "run_apart", note)
    monkeypatch.setattr(standing, "LOOKS_EVERY_S", 0.1)
    store = asked(tmp_path, "go to the red cube")
    gate = StandingGate(tmp_path, str(act) if frozen else "base", Told(), tasks=("reach", "stack"), practise=True)
    gate.start()
    until(lambda: jobs)
    assert jobs[-1].together == frozen
    assert gate.stop()
    store.close()
