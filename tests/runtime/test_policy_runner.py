"""When the policy observes, acts and swaps weights, step by step."""

import numpy as np

from engram.core.control import ChunkExecutor
from engram.core.errors import WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionSource, JointState, Observation
from engram.learning.experience.eligibility import why_not
from engram.learning.exploration import Exploration, ExplorationConfig
from engram.policies.vla.chunking import AdaptiveChunks
from engram.runtime.correction_keeper import CorrectionKeeper
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.policy_runner import Overruled, PolicyRunner, PolicyStep, source_of
from tests.learning.transitions import LINEAGE, OTHER
from tests.policies.test_chunking import SCALE_M, Homing, driven
from tests.policies.test_vla_policy import make_policy, observe
from tests.runtime.test_loop import GoRight

STEP_NS = 100_000_000


class Loadable(GoRight):
    """GoRight whose weights are its version."""

    weights = "v0"
    lineage = LINEAGE

    def load_weights(self, path, version):
        if version == "bad":
            raise WeightsError("weights 'bad': too small")
        self.weights = version

    @property
    def version(self):
        return self.weights


def step(index, episode=1, words="go", halted=False):
    joints = JointState(index * STEP_NS, ("a",), np.zeros(1), np.zeros(1))
    return PolicyStep(Observation(index * STEP_NS, {}, joints), episode, words, halted=halted)


def test_every_step_is_observed_and_a_chunk_comes_when_its_rows_are_used_up():
    runner = PolicyRunner(Loadable())  # 3 of 4 rows are executed
    due = [runner.step(step(i)) is not None for i in range(8)]
    assert due == [True, False, False, True, False, False, True, False]
    assert len(runner.policy.seen) == 8


def test_a_policy_that_practises_gets_noise_which_its_episode_begins_anew():
    runner = PolicyRunner(Loadable(), explore=Exploration(ExplorationConfig(size=0.3)))
    first, second = (runner.step(step(i)) for i in (0, 6))
    plain = PolicyRunner(Loadable()).step(step(0)).actions
    assert not np.allclose(first.actions, plain) and not np.allclose(first.actions, second.actions)
    np.testing.assert_array_equal(first.actions[:, 6], plain[:, 6])
    np.testing.assert_array_equal(runner.step(step(0)).actions, first.actions)  # the same episode, from its begin


def test_a_goal_is_driven_with_the_correction_that_is_tried_and_is_not_imitated():
    corrections = CorrectionKeeper(None, "search", 50)
    runner = PolicyRunner(Loadable(), explore=Exploration(ExplorationConfig(size=0.0)), corrections=corrections)
    plain, sizes = PolicyRunner(Loadable()).step(step(0)).actions, set()
    for episode in range(1, 16):
        given = runner.step(step(0, episode)).actions
        tried = corrections.begin(episode, "go", "v0")
        np.testing.assert_allclose(given[:, :3], plain[:, :3] @ tried.matrix().T + tried.shift)
        corrected = tried != MotionCorrection()
        assert why_not([runner.source], LINEAGE) == ("motions corrected" if corrected else "")
        runner.ended(episode, 0.0)
        sizes.add(round(float(np.linalg.norm(given[0, :3])), 6))
    assert len(sizes) > 1 and runner.corrected_by.startswith("motions ")


def test_a_repeated_step_gives_no_second_chunk():
    runner = PolicyRunner(Loadable())
    assert runner.step(step(0)) is not None
    assert runner.step(step(0)) is None


def test_a_new_episode_other_words_or_time_going_back_begin_anew():
    runner = PolicyRunner(Loadable())
    runner.step(step(5))
    assert runner.step(step(6, episode=2)).episode == 2
    assert runner.step(step(7, episode=2, words="stop")) is not None
    assert runner.step(step(1, episode=2, words="stop")) is not None


def test_weights_are_swapped_only_between_chunks():
    runner = PolicyRunner(Loadable())
    runner.step(step(0))
    runner.offer_weights("w", "v1", LINEAGE)
    runner.step(step(1))
    assert runner.policy.version == "v0"
    runner.step(step(3))
    assert runner.policy.version == "v1"


def test_refused_weights_are_reported_and_the_old_ones_go_on():
    refused = []
    runner = PolicyRunner(Loadable(), refused.append)
    runner.offer_weights("w", "bad", LINEAGE)
    assert runner.step(step(0)) is not None
    assert (runner.policy.version, str(refused[0])) == ("v0", "weights 'bad': too small")
    assert runner.step(step(3)) is not None
    assert len(refused) == 1


def test_weights_of_another_lineage_or_of_none_are_refused_with_both_names():
    refused = []
    runner = PolicyRunner(Loadable(), refused.append)
    for index, lineage in enumerate((OTHER, None)):
        runner.offer_weights("w", "v1", lineage)
        assert runner.step(step(3 * index)) is not None
    assert runner.policy.version == "v0"
    assert [str(error) for error in refused] == [
        "weights 'v1': of lineage spatial (ssssssssssss), expected base (rrrrrrrrrrrr); they differ in root",
        "weights 'v1': no lineage is given, expected base (rrrrrrrrrrrr)",
    ]
    stranger = PolicyRunner(GoRight(), refused.append)
    stranger.offer_weights("w", "v1", LINEAGE)
    stranger.step(step(0))
    assert "names no lineage and takes no weights" in str(refused[-1])


def test_the_label_names_the_weights_that_were_swapped_in():
    runner = PolicyRunner(Loadable())
    runner.label = "base"
    runner.offer_weights("w", "v1", LINEAGE)
    assert runner.drives == "base"
    runner.step(step(0))
    assert runner.drives == "base, weights v1"
    runner.offer_weights("w", "v0", LINEAGE)
    runner.step(step(3))
    assert runner.drives == "base"
    runner.offer_weights("w", "v1", LINEAGE)
    runner.step(step(6))
    runner.offer_policy(Loadable(), "another")
    runner.step(step(7, episode=2))
    assert runner.drives == "another"


def test_a_policy_is_the_source_of_its_actions():
    assert source_of(Loadable()) == ActionSource("base", LINEAGE.id)
    assert source_of(GoRight()) == ActionSource(GoRight().version)


def test_a_halted_task_stands_still_and_keeps_the_gripper():
    chunk = PolicyRunner(Loadable()).step(step(0, halted=True))
    assert chunk.policy_version == "standstill"
    np.testing.assert_array_equal(chunk.actions, np.tile([0, 0, 0, 0, 0, 0, -1.0], (4, 1)))


def test_another_policy_drives_from_the_next_episode_on_without_the_weights_of_the_one_before():
    runner, other = PolicyRunner(Loadable()), Loadable()
    runner.step(step(0))
    runner.offer_weights("w", "v1", LINEAGE)
    runner.offer_policy(other, "another")
    runner.step(step(1))
    assert (runner.policy is other, runner.label) == (False, "")
    assert runner.step(step(2, episode=2)).policy_version == "v0"
    assert (runner.policy is other, runner.label) == (True, "another")


def test_a_push_in_mid_chunk_gives_the_node_the_same_motions_as_the_loop_in_one_process():
    pushes, place, executed = {14: 0.08}, 0.3, []
    runner, executor = PolicyRunner(AdaptiveChunks(Homing(), 0.02)), ChunkExecutor(lockstep=True)
    for index in range(18):
        place += pushes.get(index, 0.0)
        joints = JointState(index * STEP_NS, ("a",), np.array([place]), np.zeros(1))
        chunk = runner.step(PolicyStep(Observation(index * STEP_NS, {}, joints), 1, "go"))
        if chunk is not None:
            executor.accept(chunk)
        executed.append(executor.action(index * STEP_NS)[0])
        place += executed[-1] * SCALE_M
    np.testing.assert_array_equal(executed, driven(AdaptiveChunks(Homing(), 0.02), pushes))


def test_a_node_that_comes_back_in_mid_chunk_commands_what_it_would_have_commanded(tmp_path):
    def runner(folder):
        return PolicyRunner(AdaptiveChunks(make_policy(memory="bank"), 1e9), keeper=EpisodeKeeper(tmp_path / folder))

    whole, killed = runner("whole"), runner("killed")
    for index in range(9):
        if index == 4:
            killed = runner("killed")
        seen = PolicyStep(observe(index * STEP_NS), 1, "go")
        np.testing.assert_array_equal(killed.step(seen).actions, whole.step(seen).actions)


def test_after_a_person_drove_a_step_the_policy_plans_anew_at_the_next():
    runner = PolicyRunner(Loadable())  # a chunk covers 3 steps
    assert runner.step(step(0)) is not None
    assert runner.overruled(Overruled(0, 1)) is None  # the next step is not observed yet
    assert runner.step(step(1)).stamp_ns == STEP_NS
    assert runner.step(step(2)) is None  # this step was observed before the person's one was told
    assert runner.overruled(Overruled(STEP_NS, 1)).stamp_ns == 2 * STEP_NS
    assert runner.overruled(Overruled(STEP_NS, 1)) is None  # told twice
    assert runner.step(step(3)) is None
    assert runner.overruled(Overruled(2 * STEP_NS, 7)) is None  # of another episode
    assert runner.step(step(4)) is None
    assert runner.step(step(5)) is not None
