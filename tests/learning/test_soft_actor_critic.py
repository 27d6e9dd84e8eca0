"""An actor learns which departure leads to success, goes on bit for bit, and refuses what is not finite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram.core.errors import InvalidInputError, WeightsError
from engram.learning.algorithms import make_algorithm
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.critics import CriticConfig, Judged
from engram.learning.algorithms.soft_actor_critic import Ensemble, SoftActorCritic, SoftActorCriticConfig
from engram.learning.algorithms.value_learning import ValueLearningConfig
from engram.learning.replay.buffer import Episode
from tests.policies.tiny import tiny_vla

STEPS = 8
"""Control steps of an episode of the toy; four are judged at once."""
UPDATES = 1500
CONFIG = ValueLearningConfig(critic=CriticConfig(components=4, width=32))


@pytest.fixture(scope="module")
def policy():
    return tiny_vla()


def soft(policy, **other) -> SoftActorCritic:
    torch.manual_seed(0)
    return SoftActorCritic(clone_policy(policy), CONFIG, SoftActorCriticConfig(**other))


def toy(algorithm: SoftActorCritic, rewarded: bool = True, episodes: int = 300) -> Judged:
    """Return episodes of a departure each; it leads to success along +y where 4 is seen first, along -y where -4 is.

    Where nothing is ``rewarded``, whether an episode succeeds has nothing to do with what was done.
    """
    rng, n = np.random.default_rng(0), episodes * STEPS
    side = np.repeat(rng.choice((-1.0, 1.0), episodes), STEPS)
    seen = rng.normal(size=(n, algorithm.model.condition_size))
    seen[:, 0] = 4.0 * side
    departure = np.repeat(rng.normal(size=(episodes, 3)) * 0.4, STEPS, axis=0)
    success = departure[:, 1] * side > 0.0 if rewarded else np.repeat(rng.random(episodes) < 0.5, STEPS)
    at = np.arange(n) % STEPS
    data = Judged(
        seen=torch.from_numpy(seen).float(),
        way=torch.zeros(n, 3),
        departure=torch.from_numpy(departure).float(),
        known=torch.from_numpy(at <= STEPS - 4).float(),
        outcome=torch.from_numpy(success * 0.98 ** (STEPS - 1 - at)).float(),
        later=torch.from_numpy(np.where(at + 4 < STEPS, np.arange(n) + 4, -1)),
        part=torch.zeros(n, dtype=torch.int64),
    )
    algorithm._foresee(data)
    algorithm.rule.foreseen.zero_()  # nothing differs anyhow
    return data


def means(algorithm: SoftActorCritic, data: Judged) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the actor's mean (3,) where 4 is seen, and where -4 is."""
    with torch.no_grad():
        departs = algorithm.departs(data.seen, data.way)
    return departs[data.seen[:, 0] > 0.0].mean(0), departs[data.seen[:, 0] < 0.0].mean(0)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_actor_learns_which_departure_leads_to_success_by_what_is_seen(policy, share):
    algorithm = soft(policy)
    data = toy(algorithm)
    prior = torch.arange(len(data.seen)) < share * len(data.seen)
    figures = algorithm.practise(data, prior, UPDATES)
    left, right = means(algorithm, data)
    assert left[1] > 0.3 and right[1] < -0.3
    assert left.abs().argmax() == right.abs().argmax() == 1
    assert figures["departure"] > 0.2 and figures["temperature"] > 0.0


def test_where_nothing_succeeds_it_departs_nowhere(policy):
    algorithm = soft(policy)
    data = toy(algorithm)
    data = replace(data, outcome=torch.zeros(len(data.seen)))
    algorithm.practise(data, torch.zeros(len(data.seen), dtype=torch.bool), UPDATES)
    assert max(mean.abs().max() for mean in means(algorithm, data)) < 0.1


def test_where_success_has_nothing_to_do_with_what_was_done_it_does_not_point_there(policy):
    """It departs all the same, by luck: nothing here tells luck from what is so."""
    algorithm = soft(policy)
    data = toy(algorithm, rewarded=False)
    algorithm.practise(data, torch.zeros(len(data.seen), dtype=torch.bool), UPDATES)
    left, right = means(algorithm, data)
    assert min(left[1], -right[1]) < 0.15


def test_each_half_of_a_batch_is_of_its_own_data(policy, monkeypatch):
    algorithm = soft(policy, batch_size=10)
    data, drawn = toy(algorithm), []
    monkeypatch.setattr(algorithm, "_critic_step", lambda state, departure, data, rows: drawn.append(rows) or 0.0)
    prior = torch.arange(len(data.seen)) < STEPS * 2
    algorithm.practise(data, prior, 4)
    assert [int(prior[rows].sum()) for rows in drawn] == [5] * 4
    drawn.clear()
    algorithm.practise(data, torch.zeros_like(prior), 4)
    assert len(drawn) == 4 and all(len(rows) == 10 for rows in drawn)


def test_a_persons_steps_and_successes_of_before_are_prior_data(policy):
    algorithm = soft(policy)

    def episode(number: int, success: bool, person: bool) -> Episode:
        driven = np.array([False, person])
        return Episode(number, "", "", {}, np.zeros((2, 15)), np.zeros((2, 7)), driven, success=success)

    episodes = [episode(1, True, False), episode(2, False, True), episode(3, True, False), episode(4, True, True)]
    algorithm._seen = {one.number: ([0, 0], None) for one in episodes}
    algorithm._seen[4] = ([], None)  # that cannot have been seen
    assert algorithm._prior(episodes, frozenset({3, 4})).tolist() == [True, True, False, True, False, False]
    episodes = [episode(-2, True, False), episode(-1, False, False), *episodes[:1]]  # two of an earlier experiment
    algorithm._seen |= {one.number: ([0, 0], None) for one in episodes}
    assert algorithm._prior(episodes, frozenset({-2, -1, 1})).tolist() == [True, True, False, False, False, False]


def test_what_the_policy_as_it_was_departs_by_anyhow_is_no_departure(policy, monkeypatch):
    """All motions are executed 1.5 shorter along x: the critics are shown what they are shown without that."""
    found = []
    for anyhow in (0.0, -1.5):
        algorithm = soft(policy)
        data = toy(algorithm, episodes=20)
        data = replace(data, seen=data.seen * torch.logspace(0, -2, data.seen.shape[1]))  # its components are distinct
        departure = data.departure - (data.departure * data.known[:, None]).sum(0) / data.known.sum()
        shifted = replace(data, departure=departure + torch.tensor((anyhow, 0.0, 0.0)))
        algorithm._foresee(shifted)
        assert algorithm.rule.foreseen[0].tolist() == pytest.approx([anyhow, 0.0, 0.0], abs=0.1)
        monkeypatch.setattr(algorithm, "_critic_step", lambda state, departure, *_: found.append(departure) or 0.0)
        algorithm.practise(shifted, torch.zeros(len(data.seen), dtype=torch.bool), 1)
    assert torch.allclose(*found, atol=1e-4)


def test_targets_are_the_lowest_of_those_that_are_drawn(policy):
    """Three averages expect 0.2, 0.4 and 0.6; with all of them drawn the target is 0.2, four steps later."""
    algorithm = soft(policy, critics=3, lowest_of=3, batch_size=4)
    with torch.no_grad():
        algorithm.rule.averaged.biases[-1][:, 0, 0] = torch.tensor((0.4, 0.2, 0.6))
    data = toy(algorithm)
    rows = torch.zeros(4, dtype=torch.int64)
    loss = algorithm._critic_step(algorithm._state(data.seen, data.way), data.departure, data, rows)
    assert loss == pytest.approx(3 * (0.2 * 0.98**4) ** 2)  # the critics expect nothing yet


def test_the_critics_do_not_learn_from_the_actors_loss(policy):
    algorithm = soft(policy)
    data = toy(algorithm)
    none = torch.zeros(len(data.seen), dtype=torch.bool)
    algorithm.practise(data, none, 50)
    rule = algorithm.rule
    before = {name: value.clone() for name, value in rule.state_dict().items()}
    algorithm._actor_step(algorithm._state(data.seen, data.way))
    changed = {name.split(".")[0] for name, value in rule.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"actor", "log_temperature"}
    assert all(one.requires_grad for one in rule.critics.parameters())


def test_it_goes_on_bit_for_bit(policy):
    one, other = soft(policy), soft(policy)
    data = toy(one)
    prior = torch.arange(len(data.seen)) % 2 == 0
    one.practise(data, prior, 20)
    other.restore(one.save())
    for algorithm in (one, other):
        torch.manual_seed(1)
        algorithm.practise(data, prior, 20)
    assert one.save() == other.save()


def test_what_is_not_finite_is_refused_and_changes_nothing(policy):
    algorithm = soft(policy)
    data = toy(algorithm)
    none = torch.zeros(len(data.seen), dtype=torch.bool)
    algorithm.practise(data, none, 10)
    before = algorithm.save()
    strange = replace(data, outcome=torch.where(data.outcome > 0.0, torch.nan, data.outcome))
    with pytest.raises(WeightsError, match="loss nan of its rule"):
        algorithm.practise(strange, none, 200)
    assert algorithm.save() == before
    algorithm._optimizers["rule"].param_groups[0]["lr"] = 1e38
    with pytest.raises(WeightsError, match=r"SoftActorCritic: (loss|not finite)"):
        algorithm.practise(data, none, 5)
    algorithm._optimizers["rule"].param_groups[0]["lr"] = CONFIG.rule_learning_rate
    assert algorithm.save() == before


def test_before_an_update_critics_expect_nothing_and_the_actor_departs_nowhere(policy):
    algorithm = soft(policy)
    data = toy(algorithm)
    assert not Ensemble(3, 5, 8)(torch.randn(4, 2), torch.randn(4, 3), torch.arange(3)).any()
    assert not algorithm.departs(data.seen, data.way).any()


def test_critics_expect_no_more_the_farther_away_from_all_data_it_is():
    critics = Ensemble(3, 5, 8)
    with torch.no_grad():
        critics.weights[-1].normal_()
    state, departure, members = torch.randn(4, 2), torch.randn(4, 3), torch.arange(3)
    near, far = critics(state, departure, members), critics(1000.0 * state, 1000.0 * departure, members)
    assert torch.allclose(near, far, atol=1e-2)  # LayerNorm


def test_it_is_made_by_its_name(policy):
    algorithm = make_algorithm("soft_actor_critic:takeover_cost=0.5", policy)
    assert isinstance(algorithm, SoftActorCritic) and algorithm.config.critic.takeover_cost == 0.5


def test_settings_that_make_no_sense_are_named():
    for wrong, said in (
        ({"critics": 0}, r"\.critics: 0, expected 1 or more"),
        ({"most_updates": 0}, r"\.most_updates: 0, expected 1 or more"),
        ({"lowest_of": 11}, r"\.lowest_of: 11, at most the 10"),
        ({"averaged": 0.0}, r"\.averaged: 0\.0, expected above 0 to 1"),
        ({"temperature": float("nan")}, r"\.temperature: nan, expected above 0 to 1"),
    ):
        with pytest.raises(InvalidInputError, match=f"SoftActorCriticConfig{said}"):
            SoftActorCriticConfig(**wrong)
