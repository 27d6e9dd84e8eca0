"""From successes in the store to candidate weights, over restarts."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from safetensors.torch import save as save_torch
from torch import nn

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.errors import InvalidInputError, StoreError, UnknownNameError, WeightsError
from engram.core.types import NOBODY, ActionSource
from engram.learning.algorithms.behavior_cloning import BehaviorCloning, BehaviorCloningConfig
from engram.learning.experience.database import set_aside
from engram.learning.experience.eligibility import STALE
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import LINE, OUT_OF_RANGE, Learner
from engram.learning.learner_config import LearnerConfig
from engram.learning.replay.buffer import ReplayConfig
from engram.learning.weights.manifest import make_manifest, tensor_specs, verify
from tests.learning.transitions import LINEAGE, OTHER, OWN, episode
from tests.runtime.test_loop import GoRight

CONFIG = LearnerConfig(
    imitate_own=True,
    updates_per_episode=10,
    batch_size=16,
    first_episodes=2,
    candidate_updates=20,
    replay=ReplayConfig(chunk_size=4),
)


class TinyPolicy(nn.Module):
    """Camera and state -> chunk, with dropout and a running statistic: what a resume must not forget."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(15)
        self.body = nn.Sequential(nn.Linear(15 + 3 * 8 * 8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4 * 7))

    def forward(self, batch):
        """Return the mean squared error over actions that are no padding, and it again as a figure."""
        image = batch["observation.images.front"].flatten(1).float() / 255.0
        chunk = self.body(torch.cat((self.norm(batch["observation.state"]), image), 1)).view(-1, 4, 7)
        error = (chunk - batch["action"]).square().mean(-1)
        loss = error[~batch[UNLEARNT_KEY]].mean()
        return loss, {"mse": loss.item()}


def cloning(network: nn.Module, config: BehaviorCloningConfig | None = None) -> BehaviorCloning:
    return BehaviorCloning(network, lambda batch: batch, config, lineage=LINEAGE)


def learner_of(store, algorithm, folder, parent="base", config=CONFIG) -> Learner:
    return Learner(store, GoRight(), algorithm, folder=folder, parent=parent, config=config)


def trainer(**config) -> BehaviorCloning:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return cloning(TinyPolicy(), BehaviorCloningConfig(learning_rate=3e-3, **config))


@pytest.fixture
def store(tmp_path):
    store = ExperienceStore(tmp_path / "store")
    yield store
    store.close()


def feed(store, numbers, steps=8, **how):
    for number in numbers:
        store.append(episode(number, steps, **how))
    store.commit()


def finish(learner) -> list[float]:
    losses = []
    while (metrics := learner.step()) is not None:
        losses.append(metrics["loss"])
    return losses


def test_cloning_successes_reduces_the_loss_and_yields_weights_that_verify(store, tmp_path):
    feed(store, range(10))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    before = {k: v.copy() for k, v in load(learner.algorithm.weights()).items()}
    assert learner.poll() == 10
    losses = finish(learner)
    assert len(losses) == 100
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    data, manifest = learner.candidate()
    assert verify(data, manifest, tensor_specs(trainer().weights())) == data
    assert (manifest.parent, manifest.stage, manifest.metrics["updates"]) == ("base", "candidate", 100)
    assert any((before[k] != v).any() for k, v in load(data).items())
    assert learner.candidate() is None


def test_where_no_update_is_paid_for_nothing_is_imitated(store, tmp_path):
    feed(store, range(3))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", replace(CONFIG, updates_per_episode=0))
    assert learner.poll() == 3
    assert learner.step() is None and learner.candidate() is None
    with pytest.raises(InvalidInputError, match=r"LearnerConfig\.updates_per_episode: -1, expected 0 or more"):
        LearnerConfig(updates_per_episode=-1)


def test_what_weights_did_that_are_too_far_behind_is_passed_over_and_named(store, tmp_path):
    learner = learner_of(store, trainer(), tmp_path / "learner", config=replace(CONFIG, most_behind=20))
    feed(store, range(2))
    learner.poll()
    finish(learner)
    first = learner.candidate()[1].version
    learner.promoted(first)  # 20 updates made it: those of before are not too far behind
    feed(store, [2])
    assert (learner.poll(), learner.lags) == (1, {"panda": 20})
    finish(learner)
    feed(store, [3])
    learner.poll()
    finish(learner)
    second = learner.candidate()[1].version
    learner.promoted(second)  # 40 updates
    for number, robot, version in ((4, "panda", second), (5, "ur5", first), (6, "late", "base"), (7, "late", "base")):
        steps = episode(number, 8, robot=robot, success=number != 7)
        store.append([replace(one, policy_version=version) for one in steps])
    store.commit()
    assert learner.poll() == 2
    assert (learner.passed_over, learner.lags) == ({STALE: 1}, {"late": 40, "ur5": 20, "panda": 0})
    assert learner.stale == f"late: base is 40 updates behind {second}, most_behind is 20"
    with pytest.raises(InvalidInputError, match=r"LearnerConfig\.most_behind: -1, expected 0 or more"):
        LearnerConfig(most_behind=-1)


def test_without_a_limit_what_old_weights_did_teaches_all_the_same(store, tmp_path):
    learner = learner_of(store, trainer(), tmp_path / "learner", parent="candidate-0100000-00000000")
    feed(store, range(2))
    assert (learner.poll(), learner.passed_over, learner.lags) == (2, {}, {"panda": 100_000})


def test_a_candidate_says_which_episodes_and_which_code_made_it(store, tmp_path):
    feed(store, range(3))
    feed(store, [3], success=False)

    def made(*polls) -> dict:
        learner = learner_of(store, trainer(), None, "base", CONFIG)
        for _ in polls:
            learner.poll()
        return learner.run(1)[1].metrics

    first = made()
    assert len(first["experience"]) == 16 and len(first["code"]) == 12
    assert made("once", "again")["experience"] == first["experience"]
    feed(store, [4], success=False)
    assert made()["experience"] == first["experience"]  # nothing was learnt from a failure
    feed(store, [5])
    assert made()["experience"] != first["experience"]


def test_weights_of_another_shape_are_refused_by_the_tensors_name():
    narrow = TinyPolicy()
    narrow.body[3] = nn.Linear(32, 5)
    data = cloning(narrow).weights()
    with pytest.raises(WeightsError, match=r"tensor 'body\.3\.(weight|bias)' has shape \(5.*expected \(28"):
        verify(data, make_manifest(data, "v1"), tensor_specs(trainer().weights()))


def test_updates_are_paced_by_successes_and_failures_pay_nothing(store, tmp_path):
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    feed(store, [0])
    assert learner.poll() == 1
    assert finish(learner) == []  # one success is too few to begin
    feed(store, [1, 2], success=False)
    assert learner.poll() == 0
    feed(store, [3])
    learner.poll()
    assert len(finish(learner)) == 20
    assert learner.poll() == 0 and finish(learner) == []
    assert (learner.metrics["episodes"], learner.metrics["successes"]) == (4, 2)


def test_a_resumed_learner_goes_on_bit_for_bit(store, tmp_path):
    feed(store, range(6))
    straight = learner_of(store, trainer(), tmp_path / "straight", "base", CONFIG)
    straight.poll()
    expected = finish(straight)

    first = learner_of(store, trainer(), tmp_path / "cut", "base", CONFIG)
    first.poll()
    losses = [first.step()["loss"] for _ in range(25)]
    first.save()
    [first.step() for _ in range(7)]  # lost in the crash: never saved
    resumed = learner_of(store, trainer(), tmp_path / "cut", "another parent", CONFIG)
    assert resumed.poll() == 0
    assert losses + finish(resumed) == expected
    assert resumed.algorithm.weights() == straight.algorithm.weights()
    assert resumed.candidate()[1] == straight.candidate()[1]


def test_only_the_newest_state_is_kept(store, tmp_path):
    feed(store, range(3))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    learner.poll()
    for _ in range(3):
        learner.step()
        learner.save()
    assert sorted(p.name for p in (tmp_path / "learner").iterdir()) == ["current", "state-000000003-000000003-0000"]


def test_a_promotion_makes_the_parent_of_the_next_candidate(store, tmp_path):
    feed(store, range(4))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    learner.poll()
    finish(learner)
    _, first = learner.candidate()
    learner.promoted(first.version)
    feed(store, range(4, 8))
    learner.poll()
    finish(learner)
    _, second = learner.candidate()
    assert (second.parent, second.version != first.version) == (first.version, True)


def test_who_goes_back_learns_on_from_those_weights_and_says_what_it_came_through(store, tmp_path):
    feed(store, range(4))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    data = learner.algorithm.weights()
    drives = make_manifest(data, "base", metrics={"corrections": 3})
    learner.poll()
    finish(learner)
    _, first = learner.candidate()
    assert learner.line == {"base": "", first.version: first.sha256} and learner.newest()[1].version == first.version
    with pytest.raises(WeightsError, match="weights to begin with"):
        learner.go_back(cloning(nn.Linear(2, 2)).weights(), drives)
    assert learner.algorithm.weights() != data
    learner.go_back(data, drives)
    assert learner.algorithm.weights() == data == save_torch(learner.algorithm.policy.state_dict())
    assert learner.line == {"base": drives.sha256} and learner.metrics["corrections"] == 3
    assert learner.candidate() is None and learner.newest() is None  # these are no candidate
    assert learner.step() is None  # what paid for updates was spent
    learner.save()
    again = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    assert again.algorithm.weights() == data and again.line == learner.line
    feed(store, range(4, 8))
    assert again.poll() == 4 and len(finish(again)) == 40
    assert again.candidate()[1].parent == "base"


def test_the_line_keeps_where_it_began_and_what_drives(store, tmp_path):
    feed(store, range(1))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", replace(CONFIG, first_episodes=1))
    made = []
    for _ in range(LINE + 5):
        made.append(learner.run(1)[1].version)
        learner.promoted(made[1] if len(made) > 1 else "base")
    assert list(learner.line) == ["base", made[1], *made[-LINE:]]


def test_a_pace_may_change_and_what_the_state_rests_on_may_not(store, tmp_path):
    class Streamed(BehaviorCloning):
        whole_episodes = True

    learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG).save()
    other = learner_of(store, trainer(), tmp_path / "learner", "base", replace(CONFIG, batch_size=8, window=4))
    assert other.changed == {"settings": "batch_size 8, was 16, window 4, was 16"}  # here a window means nothing

    def streamed(config):
        rule = Streamed(TinyPolicy(), lambda batch: batch, lineage=LINEAGE)
        return learner_of(store, rule, tmp_path / "streams", "base", config)

    streamed(CONFIG).save()
    for name, value in (("batch_size", 32), ("window", 8)):  # episodes side by side, whose memories are kept
        was = getattr(CONFIG, name)
        with pytest.raises(InvalidInputError, match=rf"streams: was trained with {name} {was}, not {value}"):
            streamed(replace(CONFIG, **{name: value}))
    assert streamed(replace(CONFIG, updates_per_episode=1)).config.updates_per_episode == 1


@pytest.mark.parametrize(
    ("setting", "least"),
    [
        ({"batch_size": 0}, 1),
        ({"window": 0}, 1),
        ({"first_episodes": -1}, 0),
        ({"candidate_updates": -5}, 0),
        ({"seed": -1}, 0),
        ({"replay": ReplayConfig(seed=-1)}, 0),
    ],
)
def test_a_setting_that_would_break_the_learner_is_refused_by_name(setting, least):
    (name,) = setting
    with pytest.raises(InvalidInputError, match=rf"LearnerConfig\.{name}(\.seed)?: -?\d, expected {least} or more"):
        LearnerConfig(**setting)


def test_without_candidate_updates_no_candidate_is_made_of_what_is_imitated(store, tmp_path):
    feed(store, range(2))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", replace(CONFIG, candidate_updates=0))
    assert learner.candidate() is None
    learner.poll()
    assert len(finish(learner)) == 20 and learner.candidate() is None and learner.metrics["candidates"] == 0


def test_a_damaged_state_is_refused_by_name(store, tmp_path):
    learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG).save()
    (file,) = (tmp_path / "learner").glob("state-*/algorithm.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    with pytest.raises(WeightsError, match="learner: training state cannot be read"):
        learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    file.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)


def test_the_state_of_another_network_is_refused_by_the_tensors_name_and_changes_nothing(store, tmp_path):
    narrow = TinyPolicy()
    narrow.body[0] = nn.Linear(15 + 3 * 8 * 8, 16)
    learner_of(store, cloning(narrow), tmp_path / "learner", "base", CONFIG).save()
    mine = trainer()
    before = mine.save()
    with pytest.raises(WeightsError, match=r"another network: tensor 'body\.0\.\w+' has shape \(16.*expected \(32"):
        learner_of(store, mine, tmp_path / "learner", "base", CONFIG)
    assert mine.save() == before


def test_what_is_set_aside_keeps_its_content_and_makes_room(tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "current").write_text("state-1")
    (tmp_path / "experience").mkdir()
    first, second = (set_aside(tmp_path, ("training", "weights")) for _ in range(2))
    assert (first / "training" / "current").read_text() == "state-1"
    assert list(second.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["experience", first.name, second.name])


def test_a_loss_that_is_not_finite_is_not_learnt_from():
    subject = trainer()
    before = subject.weights()
    batch = {
        "observation.images.front": np.zeros((4, 3, 8, 8), np.uint8),
        "observation.state": np.zeros((4, 15), np.float32),
        "action": np.full((4, 4, 7), np.inf, np.float32),
        UNLEARNT_KEY: np.zeros((4, 4), bool),
    }
    with pytest.raises(WeightsError, match="loss inf at update 0"):
        subject.update(batch, seed=0)
    assert subject.weights() == before


class Choosy(BehaviorCloning):
    """Cannot take some of the updates that it is asked for."""

    asked: tuple = ()
    refuses = 0

    def update(self, batch, seed):
        self.asked = (*self.asked, seed)
        if self.refuses:
            self.refuses -= 1
            raise WeightsError("loss nan, skipped")
        return super().update(batch, seed)


def test_what_an_update_failed_on_is_not_drawn_again_for_ever(store, tmp_path):
    feed(store, range(2))
    rule = Choosy(TinyPolicy(), lambda batch: batch, lineage=LINEAGE)
    learner = learner_of(store, rule, tmp_path)
    drawn, sample = [], learner._replay.sample
    learner._replay.sample = lambda size, seed: drawn.append(seed) or sample(size, seed)
    learner.poll()
    learner.step()
    rule.refuses = 2
    for _ in range(2):
        with pytest.raises(WeightsError, match="loss nan"):
            learner.step()
    learner.save()
    paid = learner.metrics["update_credit"]
    learner.step()
    assert drawn == [(0, n) for n in range(4)] and len(set(rule.asked)) == 4
    assert (learner.metrics["updates"], learner.metrics["update_credit"]) == (2, paid - 1)
    again = learner_of(store, Choosy(TinyPolicy(), lambda batch: batch, lineage=LINEAGE), tmp_path)
    again.step()
    assert again.algorithm.asked == rule.asked[-1:]


@pytest.mark.parametrize("name", ["state", "executed_action"])
@pytest.mark.parametrize("value", [1e3, -1e12, np.nan])
def test_an_episode_with_a_number_that_no_robot_has_is_passed_over_and_named(store, tmp_path, name, value):
    feed(store, range(2))
    steps = episode(2, 8)
    wrong = getattr(steps[5], name).copy()
    wrong[3] = value
    with suppress(InvalidInputError):  # not a number is no transition
        store.append([*steps[:5], replace(steps[5], **{name: wrong}), *steps[6:]])
        store.commit()
    learner = learner_of(store, cloning(TinyPolicy()), tmp_path)
    assert learner.poll() == 2 and learner.misfit == ""
    if np.isfinite(value):
        assert learner.passed_over == {OUT_OF_RANGE: 1}
        assert learner.strange == f"panda: episode 3: {name}[3] is {value:g} at step 5, expected -100 .. 100"
    assert np.isfinite(finish(learner)).all()


def test_shipped_weights_are_the_average_of_the_trained_ones():
    """After one step the decay is (1 + 1) / (10 + 1): average = start + (1 - 2/11) (live - start)."""
    subject = trainer()
    start = load(subject.weights())["body.0.weight"]
    rng = np.random.default_rng(0)
    batch = {
        "observation.images.front": np.zeros((4, 3, 8, 8), np.uint8),
        "observation.state": rng.normal(size=(4, 15)).astype(np.float32),
        "action": np.ones((4, 4, 7), np.float32),
        UNLEARNT_KEY: np.zeros((4, 4), bool),
    }
    subject.update(batch, seed=0)
    live = subject.policy.state_dict()["body.0.weight"].numpy()
    shipped = load(subject.weights())["body.0.weight"]
    np.testing.assert_allclose(shipped, start + 9 / 11 * (live - start), rtol=1e-5, atol=1e-7)


def test_an_episode_dropped_by_the_stores_bound_is_no_error(tmp_path, store):
    feed(store, range(3))
    learner = learner_of(store, trainer(), tmp_path / "learner", "base", CONFIG)
    store._database.execute("UPDATE episodes SET kept = 0 WHERE number = 2")
    assert learner.poll() == 2


def passed_over(store, folder, *sources) -> tuple[int, dict[str, int]]:
    """Return how many of the episodes with these sources, one each, are learnt from, and why the others are not."""
    for number, per_step in enumerate(sources):
        store.append(
            [replace(one, source=per_step[one.step % len(per_step)]) for one in episode(number, steps=8)],
        )
    store.commit()
    learner = learner_of(store, trainer(), folder)
    learner.poll()
    learner.save()
    assert learner_of(store, trainer(), folder).passed_over == learner.passed_over  # counts over a restart
    return learner.metrics["successes"], learner.passed_over


def test_only_its_own_policys_episodes_without_ablation_or_covered_camera_are_learnt_from(store, tmp_path):
    other = ActionSource("spatial", OTHER.id)
    unknown = ActionSource("base")
    spoilt = replace(OWN, ablation="zeroed")
    blind = replace(OWN, covered_cameras=("wrist",))
    nobody = ActionSource(NOBODY)
    found = passed_over(
        store, tmp_path / "learner",
        [OWN], [nobody, OWN], [OWN, other], [other], [unknown], [nobody], [ActionSource()], [spoilt], [OWN, OWN, blind],
    )  # fmt: skip
    assert found == (2, {"other lineage": 2, "unknown lineage": 3, "ablation": 1, "covered camera": 1})


def test_run_takes_all_updates_at_once_and_returns_weights_of_its_lineage(store, tmp_path):
    feed(store, range(3))
    learner = Learner(store, GoRight(), trainer(), config=CONFIG)
    data, manifest = learner.run(updates=7)
    assert learner.metrics["updates"] == 7  # successes had paid for 30
    assert manifest.version == f"candidate-0000007-{manifest.sha256[:8]}"
    assert (manifest.parent, manifest.lineage) == (GoRight().version, LINEAGE)
    assert verify(data, manifest, tensor_specs(trainer().weights())) == data
    with pytest.raises(InvalidInputError, match="this learner has no folder"):
        learner.save()


def test_run_without_an_episode_of_its_own_says_what_there_is(store):
    feed(store, range(2), source=ActionSource("spatial", OTHER.id))
    with pytest.raises(
        InvalidInputError, match=r"lineage base \(rrrrrrrrrrrr\) among 2; .*passed over: 2 other lineage"
    ):
        Learner(store, GoRight(), trainer(), config=CONFIG).run(updates=1)


def test_the_state_of_another_lineage_is_refused_though_it_fits(store, tmp_path):
    learner_of(store, trainer(), tmp_path / "learner").save()
    stranger = BehaviorCloning(TinyPolicy(), lambda batch: batch, lineage=OTHER)
    before = stranger.save()
    with pytest.raises(WeightsError, match=f"state of lineage {LINEAGE.id}, expected {OTHER.id}: spatial"):
        learner_of(store, stranger, tmp_path / "learner")
    assert stranger.save() == before


def test_an_algorithm_is_chosen_by_name_or_by_package_module_attribute(store):
    made = Learner(store, GoRight(), "tests.learning.test_learner:for_policy", config=CONFIG)
    assert isinstance(made.algorithm, BehaviorCloning)
    with pytest.raises(UnknownNameError, match="unknown learning algorithm 'sac'; valid: advantage_cloning, "):
        Learner(store, GoRight(), "sac")
    with pytest.raises(InvalidInputError, match="is the function no_algorithm, expected a Algorithm"):
        Learner(store, GoRight(), "tests.learning.test_learner:no_algorithm")
    with pytest.raises(InvalidInputError, match="is a GoRight; behavior cloning needs a policy of type engram_vla"):
        Learner(store, GoRight(), "behavior_cloning")


def for_policy(policy) -> BehaviorCloning:
    return trainer()


def no_algorithm(policy) -> int:
    return 3


def test_importing_learning_and_its_learner_imports_no_torch():
    code = "import sys; from engram.learning import ExperienceStore, Learner; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
