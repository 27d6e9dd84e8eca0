"""Critics find what leads to success, by failures too, and are sure of nothing by luck; the action head learns it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError, InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import EXPLORED
from engram.learning.algorithms import ALGORITHMS, behavior_cloning, make_algorithm
from engram.learning.algorithms.advantage_cloning import AdvantageCloning
from engram.learning.algorithms.best_of_n import BestOfN
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.critics import (
    CriticConfig,
    Critics,
    Judged,
    _unforeseen,
    departure_of,
    fit,
    project,
    reach,
    way_of,
)
from engram.learning.algorithms.distillation import DistillationConfig, distill_head
from engram.learning.algorithms.edit_actor import EditActor
from engram.learning.algorithms.noise_steering import NoiseSteering
from engram.learning.algorithms.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from engram.learning.algorithms.value_learning import ValueLearningConfig
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import Learner
from engram.learning.learner_config import LearnerConfig
from engram.learning.replay.buffer import ReplayConfig
from engram.learning.workspace import open_workspace
from engram.policies.vla.flow import integrate
from tests.learning.transitions import OWN, episode
from tests.policies.tiny import tiny_vla

RULES = (AdvantageCloning, EditActor, BestOfN, NoiseSteering, SoftActorCritic)
QUICK = CriticConfig(parts=4, updates=300, steps=2, components=4, width=16)


def judged(rng: np.random.Generator, worth, episodes: int = 60, steps: int = 20) -> Judged:
    """Return episodes whose departures last; ``worth`` (way, departure) tells how they raise the chance of success."""
    n = episodes * steps
    way = torch.from_numpy(rng.normal(size=(n, 3)).astype(np.float32))
    departure = torch.from_numpy(np.repeat(rng.normal(size=(n // 4, 3)), 4, axis=0).astype(np.float32)) * 0.4
    chance = 0.5 + worth(way, departure).view(episodes, steps).mean(1)
    success = torch.from_numpy(rng.random(episodes)).float() < chance
    at = torch.arange(n) % steps
    outcome = success.float().repeat_interleave(steps) * 0.98 ** (steps - 1 - at).float()
    later = torch.where(at + 4 < steps, torch.arange(n) + 4, -1)
    part = (torch.arange(n) // steps) % QUICK.parts
    seen = torch.from_numpy(rng.normal(size=(n, 8)).astype(np.float32))
    return Judged(seen, way, departure, torch.ones(n), outcome, later, part)


def test_critics_are_sure_of_what_leads_to_success_and_of_nothing_else():
    """Departing to the left of the way helps, as where all motions are turned."""
    torch.manual_seed(0)
    data = judged(np.random.default_rng(0), lambda way, departure: 4.0 * departure[:, 1] * way[:, 0], episodes=400)
    critics, _ = fit(replace(QUICK, updates=400), data)
    sure = critics.sure
    assert sure[1, 1] > 0.01  # of departures along y, by the way along x
    sure[1, 1] = 0.0
    assert sure.abs().max() < 0.5 * critics.sure[1, 1]
    ahead = torch.tensor([[1.0, 0.0, 0.0]])
    best = critics.best(ahead)
    assert best[0, 1] > 0.0 and critics.gain(ahead, best) > 0.0 > critics.gain(ahead, -best)


def test_luck_makes_critics_sure_of_hardly_anything():
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        critics, _ = fit(
            replace(QUICK, updates=150), judged(np.random.default_rng(seed), lambda way, _: torch.zeros(len(way)))
        )
        found.append(float((critics.sure != 0.0).float().mean()))
    assert np.mean(found) < 0.15


def test_what_one_critic_alone_has_learnt_does_not_count():
    critics, _ = fit(replace(QUICK, updates=1), judged(np.random.default_rng(0), lambda way, _: torch.zeros(len(way))))
    with torch.no_grad():
        critics.linear.zero_()
        critics.linear[0, 0, 0] = 1.0
        assert not critics.sure.any()
        critics.linear[:, 0, 0] = torch.tensor((0.9, 1.0, 1.1, 1.0))
    assert 0.8 < critics.sure[0, 0] < 1.0
    assert torch.count_nonzero(critics.sure) == 1


def test_a_departure_is_told_in_units_of_what_exploration_draws():
    usual = torch.zeros(1, 2, 7)
    usual[..., 0] = 0.3
    assert reach(usual)[0, 0, 0] == pytest.approx(0.2)
    actions = usual.clone()
    actions[..., 1] += 0.1
    assert departure_of(actions, usual).tolist() == [pytest.approx([0.0, 0.5, 0.0])]
    assert way_of(usual).tolist() == [pytest.approx([1.5, 0.0, 0.0])]


# -- in the learner ------------------------------------------------------------------------------------------------

CONFIG = LearnerConfig(updates_per_episode=4, first_episodes=1, candidate_updates=20, replay=ReplayConfig(chunk_size=6))
VALUES = ValueLearningConfig(
    critic=QUICK, first_fit=12, fit_every=20, answers=8, head_updates=40, batch_size=32, learning_rate=1e-2
)


def briefly(rule, policy):
    """Return the algorithm of ``rule`` for tests of what does not depend on how much it learns in a round."""
    if rule is SoftActorCritic:
        return SoftActorCritic(clone_policy(policy), VALUES, SoftActorCriticConfig(most_updates=100))
    return rule(clone_policy(policy), VALUES)


def tried(number: int, usual: np.ndarray, rng: np.random.Generator, steps: int = 8):
    """Return an episode with noise in its motions: it succeeds if they depart along x."""
    draw = rng.normal(size=3).astype(np.float32) * 0.6
    action = usual.copy()
    action[:3] += draw * (0.05 + 0.5 * np.linalg.norm(usual[:3]))
    source = replace(OWN, ablation=EXPLORED)
    return [
        replace(
            t,
            images={"front": t.images["front"], "wrist": t.images["front"]},
            executed_action=action,
            source=source,
            author="",
        )
        for t in episode(number, steps, image_size=64, success=bool(draw[0] > 0.0), source=source)
    ]


@pytest.fixture(scope="module")
def policy():
    policy = tiny_vla()
    policy.instructions = ("press the red button",)
    return policy


@pytest.fixture(scope="module")
def experience(policy, tmp_path_factory):
    """Return a store of episodes around what ``policy`` usually does."""
    folder = tmp_path_factory.mktemp("experience")
    algorithm, rng = EditActor(clone_policy(policy), VALUES), np.random.default_rng(0)
    probe = ExperienceStore(folder / "probe")
    probe.append(tried(0, np.zeros(7, np.float32), rng))
    probe.commit()
    learner = Learner(probe, policy, algorithm, config=CONFIG)
    learner.poll()
    steps, _ = algorithm._gathered(learner._replay.episodes)
    usual = algorithm.units.actions(steps.answer.mean((0, 1, 2))).numpy()
    probe.close()
    store = ExperienceStore(folder / "store")
    for number in range(40):
        store.append(tried(number, usual, rng))
    store.commit()
    yield store
    store.close()


def answered(algorithm, steps, head):
    """Return the mean translation of what ``head`` answers in ``steps``."""
    config = algorithm.model.config
    with torch.no_grad():
        answer = integrate(head.at_steps(steps.condition, config.euler_steps), steps.noise)
    return algorithm.units.actions(answer)[..., :3].mean((0, 1, 2))


@pytest.mark.parametrize("rule", RULES)
def test_the_head_learns_what_the_critics_are_sure_of(rule, policy, experience):
    algorithm = rule(clone_policy(policy), VALUES)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    assert learner.poll() == 40 and learner.metrics["failures"] > 5
    told = f"{learner.metrics['successes']} successes and {learner.metrics['failures']} failures"
    assert learner.teaches == told
    while learner.step() is not None:
        pass
    assert algorithm.knows_better
    steps, _ = algorithm._gathered(learner._replay.episodes)
    before, now = (answered(algorithm, steps, head) for head in (algorithm.before, algorithm.model.head))
    assert now[0] > before[0] + 0.002
    data, manifest = learner.candidate()
    assert len(data) > 1000 and manifest.metrics["failures"] == learner.metrics["failures"]


def test_other_goals_keep_their_answers(policy, experience):
    moved = []
    for share in (0.0, 0.8):
        algorithm = EditActor(clone_policy(policy), replace(VALUES, kept=share))
        learner = Learner(experience, policy, algorithm, config=CONFIG)
        learner.poll()
        for _ in range(VALUES.head_updates):
            learner.step()
        _, kept = algorithm._gathered(learner._replay.episodes)
        before, now = (answered(algorithm, kept, head) for head in (algorithm.before, algorithm.model.head))
        moved.append(float((now - before).norm()))
    assert moved[1] < 0.7 * moved[0]


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_training_goes_on_bit_for_bit(rule, policy, experience, tmp_path):
    one = Learner(experience, policy, briefly(rule, policy), folder=tmp_path, config=CONFIG)
    one.poll()
    for _ in range(10):
        one.step()
    one.save()
    other = Learner(experience, policy, briefly(rule, policy), folder=tmp_path, config=CONFIG)
    assert other.metrics == one.metrics
    for _ in range(5):
        assert one.step() == other.step()
    assert one.algorithm.weights() == other.algorithm.weights()


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_a_state_of_another_rule_or_damaged_changes_nothing(rule, policy, experience):
    algorithm = rule(clone_policy(policy), VALUES)
    before = algorithm.weights()
    for state in (BestOfN(clone_policy(policy), VALUES).save(), b"", algorithm.save()[:-4]):
        with pytest.raises(WeightsError):
            algorithm.restore(state)
    with pytest.raises(WeightsError, match=f"BestOfN, expected {rule.__name__}"):
        algorithm.restore(BestOfN(clone_policy(policy), VALUES).save())
    wider = rule(clone_policy(policy), replace(VALUES, critic=replace(QUICK, width=8)))
    with pytest.raises(WeightsError, match="another network"):
        algorithm.restore(wider.save())
    assert algorithm.weights() == before


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_who_goes_back_to_what_drives_edits_nothing_any_more(rule, policy, experience):
    algorithm = briefly(rule, policy)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    began = algorithm.weights()
    learner.poll()
    for _ in range(VALUES.head_updates):
        learner.step()
    assert algorithm.weights() != began and algorithm.critics.axes.any()
    algorithm.begin(began)
    assert algorithm.weights() == began and not algorithm.critics.axes.any()
    fresh = briefly(rule, policy).rule.state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in algorithm.rule.state_dict().items())


def with_earlier(policy, algorithm, folder, own=6) -> Learner:
    """Return a learner with 14 episodes of an earlier experiment and ``own`` of its own."""
    rng, stores = np.random.default_rng(3), []
    for name, numbers in (("before", range(14)), ("own", range(14, 14 + own))):
        stores.append(ExperienceStore(folder / name))
        for number in numbers:
            stores[-1].append(tried(number, np.zeros(7, np.float32), rng))
        stores[-1].commit()
    replay = replace(CONFIG.replay, earlier=(str(folder / "before"),))
    learner = Learner(stores[1], policy, algorithm, config=replace(CONFIG, first_episodes=0, replay=replay))
    learner.poll()
    for store in stores:
        store.close()
    return learner


@pytest.mark.parametrize(("own", "most", "updates"), [(6, 20_000, 5 * 6 * 8), (6, 100, 100), (0, 20_000, 5 * 14 * 8)])
def test_an_actors_own_steps_pay_for_its_updates_and_tell_what_is_foreseen(
    policy, tmp_path, monkeypatch, own, most, updates
):
    values = replace(VALUES, first_fit=14, critic=replace(QUICK, parts=2))
    algorithm, rounds, foreseen = (
        SoftActorCritic(clone_policy(policy), values, SoftActorCriticConfig(most_updates=most)),
        [],
        [],
    )
    learner = with_earlier(policy, algorithm, tmp_path, own)
    monkeypatch.setattr(algorithm, "_foresee", lambda first: foreseen.append(len(first.seen)))
    monkeypatch.setattr(algorithm, "practise", lambda data, prior, updates: rounds.append((len(prior), updates)) or {})
    learner.algorithm.update(learner._replay.episodes, 0)
    assert rounds == [((14 + own) * 8, updates)]
    assert foreseen == [(own or 14) * 8]  # how motions were executed elsewhere tells nothing


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_earlier_experience_is_learnt_from_also_after_training_went_back(rule, policy, tmp_path):
    algorithm = rule(clone_policy(policy), VALUES)
    learner = with_earlier(policy, algorithm, tmp_path)
    episodes = learner._replay.episodes
    algorithm.begin(algorithm.weights())
    assert len(episodes) == 20 and [one.number < 0 for one in algorithm._own(episodes)] == [True] * 14
    again = rule(clone_policy(policy), VALUES)
    again.restore(algorithm.save())
    assert len(again._own(episodes)) == 14 == learner.metrics["earlier_episodes"]


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_a_correction_becomes_part_of_the_head(rule, policy, experience, monkeypatch):
    algorithm = rule(clone_policy(policy), VALUES)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    quick = partial(distill_head, config=DistillationConfig(updates=2))
    monkeypatch.setattr(behavior_cloning, "distill_head", quick)
    began = [parameter.clone() for parameter in algorithm.before.parameters()]
    learner.correct([(MotionCorrection(scale=0.5), experience.episode(1))])
    assert not all(map(torch.equal, began, algorithm.before.parameters()))
    for old, now in zip(algorithm.before.parameters(), algorithm.model.head.parameters(), strict=True):
        assert torch.equal(old, now)  # what the policy was is the corrected one now


def test_cloning_takes_no_failures(policy, experience):
    learner = Learner(experience, policy, config=CONFIG)
    learner.poll()
    assert learner.metrics["failures"] == 0 < learner.metrics["successes"] < 40


def test_a_goal_that_nobody_judged_is_no_failure(policy, tmp_path):
    store = ExperienceStore(tmp_path)
    for number in range(2):
        steps = tried(number, np.zeros(7, np.float32), np.random.default_rng(2))
        steps[-1] = replace(steps[-1], success=False, reward_source="none" if number else "oracle")
        store.append(steps)
    store.commit()
    learner = Learner(store, policy, EditActor(clone_policy(policy), VALUES), config=CONFIG)
    assert learner.poll() == 1 and learner.metrics["failures"] == 1
    store.close()


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_before_the_critics_know_enough_nothing_changes(rule, policy, experience):
    config = replace(VALUES, first_fit=1000)
    algorithm = rule(clone_policy(policy), config)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    before = algorithm.weights()
    learner.poll()
    assert learner.step() == {"loss": 0.0}
    assert algorithm.weights() == before


def test_motions_that_are_executed_shorter_are_no_advantage():
    """The departure then repeats the way, and luck would make critics sure of what is the value's."""
    torch.manual_seed(0)
    data = judged(np.random.default_rng(0), lambda way, _: 0.3 * way[:, 1])
    shorter = replace(data, departure=data.departure * 0.2 - 0.4 * data.way)
    critics, _ = fit(QUICK, shorter)
    ahead = torch.eye(3)
    assert (critics.best(ahead) * ahead).sum(1).abs().max() < 0.1


def test_one_impossible_step_leaves_out_its_episode_alone(policy, tmp_path):
    store, rng = ExperienceStore(tmp_path), np.random.default_rng(0)
    for number in range(30):
        steps = tried(number, np.zeros(7, np.float32), rng)
        if number == 7:
            steps[3] = replace(steps[3], state=np.full_like(steps[3].state, 1e30), executed_action=np.full(7, 3e38))
        store.append(steps)
    store.commit()
    algorithm = EditActor(clone_policy(policy), replace(VALUES, critic=replace(QUICK, updates=20)))
    learner = Learner(store, policy, algorithm, config=CONFIG)
    learner.poll()
    assert all(np.isfinite(learner.step()["loss"]) for _ in range(5))
    store.close()
    strange = [replace(one, state=np.full_like(one.state, 1e30)) for one in learner._replay.episodes]
    with pytest.raises(WeightsError, match="nothing in 29 episodes can have been seen so"):
        EditActor(clone_policy(policy), VALUES).update(strange, 0)


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_what_was_taught_is_not_taught_again_from_the_same_experience(rule, policy, experience):
    algorithm = briefly(rule, policy)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    learner.poll()
    for _ in range(VALUES.head_updates):
        learner.step()
    data, manifest = learner.candidate()
    learner.go_back(data, manifest)
    for _ in range(VALUES.head_updates):
        learner.step()
    assert algorithm.weights() == data and learner.candidate() is None
    assert algorithm.waits_for(learner._replay.episodes).startswith("critics wait for 12 more episodes")


def test_a_learner_that_waits_says_so_and_makes_no_candidate(policy, experience):
    algorithm = EditActor(clone_policy(policy), replace(VALUES, first_fit=1000))
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    learner.poll()
    for _ in range(CONFIG.candidate_updates):
        learner.step()
    assert learner.candidate() is None
    assert learner.teaches.startswith("nothing yet of ") and learner.teaches.endswith("wait for 960 more episodes")
    with pytest.raises(InvalidInputError, match="5 updates changed nothing: critics wait for 960 more episodes"):
        learner.run(5)


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_episodes_of_another_store_are_new(rule, policy, experience):
    algorithm = briefly(rule, policy)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    learner.poll()
    learner.step()
    episodes = learner._replay.episodes
    assert "new episodes" in algorithm.waits_for(episodes)
    algorithm.forget_episodes()
    assert algorithm.waits_for(episodes) == ""


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_what_is_half_taught_does_not_ship(rule, policy, experience):
    algorithm = briefly(rule, policy)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    before = algorithm.weights()
    learner.poll()
    for _ in range(VALUES.head_updates - 1):
        learner.step()
    assert algorithm.weights() == before
    learner.step()
    assert algorithm.weights() != before


def test_critics_that_are_sure_of_nothing_give_the_policy_back_as_it_was(policy, experience):
    sceptical = replace(VALUES, critic=replace(QUICK, updates=5, surety=1e6))
    algorithm = EditActor(clone_policy(policy), sceptical)
    learner = Learner(experience, policy, algorithm, config=CONFIG)
    before = algorithm.weights()
    with torch.no_grad():
        algorithm.model.head.leave.bias.add_(1.0)  # as if something had been taught
    learner.poll()
    learner.step()
    assert algorithm.weights() == before


@pytest.mark.parametrize("rule", [EditActor, SoftActorCritic])
def test_a_policy_with_a_memory_of_its_episode_learns_so_too(rule, tmp_path):
    policy = tiny_vla(memory="bank", memory_steps=4, memory_events=2, memory_details=1)
    store, rng = ExperienceStore(tmp_path), np.random.default_rng(0)
    for number in range(16):
        store.append(tried(number, np.zeros(7, np.float32), rng, steps=4))
    store.commit()
    algorithm = rule(clone_policy(policy), replace(VALUES, critic=replace(QUICK, updates=20)))
    learner = Learner(store, policy, algorithm, config=CONFIG)
    assert learner.poll() == 16
    assert learner.step()["critic_loss"] > 0.0
    store.close()


# -- a person takes over -------------------------------------------------------------------------------------------


def test_a_taking_over_is_the_outcome_of_what_was_done_before_it(policy, experience):
    """What is expected is computed by hand: the person drives steps 3, 4 and 7 of 8, and the episode succeeds."""
    found = {}
    for cost in (0.0, 0.4):
        critic = replace(QUICK, discount=0.5, takeover_cost=cost)
        algorithm = EditActor(clone_policy(policy), replace(VALUES, critic=critic))
        learner = Learner(experience, policy, algorithm, config=CONFIG)
        learner.poll()
        person = np.array([0, 0, 0, 1, 1, 0, 0, 1], bool)
        found[cost] = algorithm._steps(replace(learner._replay.episodes[0], person=person, success=True))
    off, on = found[0.0], found[0.4]
    assert off.outcome.tolist() == [2.0**-n for n in range(7, -1, -1)]
    assert off.later.tolist() == [2, 3, 4, 5, 6, 7, -1, -1]
    assert off.known.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]  # what led to where the person took over is not judged
    assert on.outcome.tolist() == pytest.approx([-0.1, -0.2, -0.4, -0.05, -0.1, -0.2, -0.4, 1.0])
    assert on.later.tolist() == [2, -1, -1, 5, 6, -1, -1, -1]
    assert on.known.tolist() == [1, 1, 0, 0, 0, 1, 0, 0]  # and now is; the person is not to blame
    assert torch.equal(on.action, off.action)


def test_what_comes_later_may_cost_something():
    """The last two of eight steps have the outcome -0.5 within reach; the others expect what comes there."""
    torch.manual_seed(0)
    n, at = 400, torch.arange(400) % 8
    seen, nothing = torch.nn.functional.one_hot(at, 8).float(), torch.zeros(n, 3)
    later = torch.where(at + 2 < 8, torch.arange(n) + 2, -1)
    data = Judged(seen, nothing, nothing, torch.ones(n), torch.full((n,), -0.5), later, torch.arange(n) // 8 % 4)
    config = replace(QUICK, returns=0.0, discount=0.9, components=8, takeover_cost=0.5, updates=1500, dropout=0.0)
    critics, _ = fit(config, data)
    with torch.no_grad():
        expected = critics(seen[:8], nothing[:8], nothing[:8]).mean(0)
    # two steps earlier each time: -0.5, -0.5 * 0.81, -0.5 * 0.81^2 and -0.5 * 0.81^3
    assert expected[::2].tolist() == pytest.approx([-0.266, -0.328, -0.405, -0.5], abs=0.05)


def overruled(number: int, usual: np.ndarray, rng: np.random.Generator):
    """Return an episode in which a person takes over, and succeeds, where the motions depart along x; else few do."""
    steps = tried(number, usual, rng, steps=16)
    if not steps[-1].success:
        lucky = bool(rng.random() < 0.3)
        return [*steps[:-1], replace(steps[-1], success=lucky, reward=float(lucky))]
    return [*steps[:12], *(replace(one, author="human:ann", executed_action=usual) for one in steps[12:])]


def test_what_makes_a_person_take_over_is_no_gain_though_the_episodes_succeed(policy, tmp_path):
    store, rng, sure = ExperienceStore(tmp_path), np.random.default_rng(0), []
    probe = EditActor(clone_policy(policy), VALUES)
    store.append(tried(0, np.zeros(7, np.float32), rng))
    store.commit()
    learner = Learner(store, policy, probe, config=CONFIG)
    learner.poll()
    usual = probe.units.actions(probe._gathered(learner._replay.episodes)[0].answer.mean((0, 1, 2))).numpy()
    for number in range(1, 61):
        store.append(overruled(number, usual, rng))
    store.commit()
    for cost in (0.0, 0.5):
        algorithm = EditActor(clone_policy(policy), replace(VALUES, critic=replace(QUICK, takeover_cost=cost)))
        learner = Learner(store, policy, algorithm, config=CONFIG)
        assert learner.poll() == 61
        learner.step()
        sure.append(float(algorithm.critics.sure[0, 0]))
    store.close()
    assert sure[0] > 0.01 and sure[1] < -0.01


def test_where_a_taking_over_costs_it_is_a_failure_that_critics_need(policy, experience):
    for cost, said in ((0.0, "critics wait for 4 more failures"), (0.5, "")):
        algorithm = EditActor(clone_policy(policy), replace(VALUES, critic=replace(QUICK, takeover_cost=cost)))
        learner = Learner(experience, policy, algorithm, config=CONFIG)
        learner.poll()
        algorithm.forget_episodes()
        helped = np.arange(8) > 4
        episodes = [
            replace(one, success=True, person=helped & (one.number % 2 == 0)) for one in learner._replay.episodes
        ]
        assert algorithm.waits_for(episodes) == said


def test_an_algorithm_with_critics_takes_the_cost_by_name():
    policy = tiny_vla()
    for name in ("advantage_cloning", "edit_actor", "best_of_n", "noise_steering"):
        costs = [make_algorithm(one, policy).config.critic.takeover_cost for one in (name, f"{name}:takeover_cost=0.5")]
        assert costs == [0.0, 0.5]


def test_the_learner_of_the_nodes_takes_the_cost_by_name_too(policy, experience, tmp_path):
    space = open_workspace(tmp_path, experience, policy, "edit_actor:takeover_cost=0.5", CONFIG)
    assert space.learner.algorithm.config.critic.takeover_cost == 0.5
    space.library.close()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("edit_actor:cost=1", "unknown option of learning algorithm edit_actor 'cost'; .*valid: takeover_cost"),
        ("edit_actor:takeover_cost=much", "takeover_cost 'much', expected a number 0..1"),
        ("edit_actor:takeover_cost=2", r"CriticConfig\.takeover_cost: 2\.0, expected 0\.\.1"),
        ("edit_actor:takeover_cost=nan", r"CriticConfig\.takeover_cost: nan, expected 0\.\.1"),
        ("behavior_cloning:takeover_cost=1", "behavior_cloning takes no options; advantage_cloning, edit_actor, "),
        ("tests.a:b:takeover_cost=1", "tests.a:b takes no options; advantage_cloning, "),
        ("edit_acto:takeover_cost=1", "unknown learning algorithm 'edit_acto'; did you mean 'edit_actor'"),
    ],
)
def test_an_option_that_an_algorithm_does_not_take_is_named(spec, said):
    with pytest.raises(EngramError, match=said):
        make_algorithm(spec, tiny_vla())


def test_every_rule_has_a_name():
    names = {type(make_algorithm(name, tiny_vla())).__name__ for name in ALGORITHMS if name != "behavior_cloning"}
    assert names == {rule.__name__ for rule in RULES}


def test_settings_that_make_no_sense_are_named():
    with pytest.raises(InvalidInputError, match=r"CriticConfig\.parts: 1"):
        CriticConfig(parts=1)
    with pytest.raises(InvalidInputError, match=r"CriticConfig\.curvature"):
        CriticConfig(curvature=0.0)
    with pytest.raises(InvalidInputError, match=r"ValueLearningConfig\.kept"):
        ValueLearningConfig(kept=1.0)
    with pytest.raises(InvalidInputError, match=r"CriticConfig\.steps: 7, at most the 6"):
        EditActor(clone_policy(tiny_vla()), ValueLearningConfig(critic=CriticConfig(steps=7)))


def test_what_is_foreseen_of_departures_is_the_same_at_every_call_also_where_no_way_is_gone():
    critics, rng = Critics(CriticConfig(components=16), 40), np.random.default_rng(0)
    seen = torch.from_numpy(rng.normal(size=(200, 40))).float()
    project(critics, seen)
    departure, known = torch.from_numpy(rng.normal(size=(200, 3))).float(), torch.ones(200)
    nothing = torch.zeros(200), torch.full((200,), -1), torch.zeros(200, dtype=torch.int64)
    data = Judged(seen, torch.zeros(200, 3), departure, known, *nothing)
    told = np.hstack((np.ones((200, 1)), np.zeros((200, 3)), critics.components(seen).numpy())).astype(float)
    left = departure.numpy() - told @ np.linalg.lstsq(told, departure.numpy().astype(float), rcond=None)[0]
    for _ in range(20):
        np.testing.assert_allclose(_unforeseen(critics, data).numpy(), left, atol=1e-5)
