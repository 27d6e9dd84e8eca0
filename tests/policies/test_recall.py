"""The memory of the episode in the network: shut at first, read when it opens, the same step by step."""

import pytest
import torch

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.policies.vla.recurrent_state import RecurrentState, _size

from .recall_task import Shown
from .tiny import tiny_batch, tiny_policy

SMALL = {"memory_steps": 4, "memory_events": 3, "memory_details": 2}


def remembering(memory="bank", opened=True, **fields):
    policy = tiny_policy(memory=memory, **SMALL, **fields)
    if opened:
        with torch.no_grad():
            policy.model.recall.fuse.weight.normal_()
    return policy


def observed(policy, *batches):
    """Return what the last of these control steps was understood as."""
    memory = RecurrentState()
    with torch.no_grad():
        for i, batch in enumerate(batches):
            percept = memory.percept(policy.model, batch, i, 0.1 * i)
    return percept


def other_batch():
    return {key: tensor.flip(0) for key, tensor in tiny_batch().items()}


def chunk(policy, batch, percept=None):
    noise = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(3))
    return policy.predict_action_chunk(batch, noise=noise, percept=percept)


def test_without_a_memory_the_network_has_no_new_weights_and_with_one_the_old_ones_begin_alike():
    plain, with_memory = tiny_policy().state_dict(), tiny_policy(memory="bank", **SMALL).state_dict()
    assert not any("recall" in name for name in plain)
    assert {name for name in with_memory if not name.startswith("model.recall.")} == set(plain)
    kept = [name for name in plain if not name.startswith(("model.head.modulate", "model.head.leave"))]
    assert all(torch.equal(plain[name], with_memory[name]) for name in kept)  # tiny_policy draws the others again


def test_a_fresh_network_acts_as_without_memory_to_the_bit():
    policy, batch = remembering(opened=False), tiny_batch()
    percept = observed(policy, other_batch(), batch)
    assert percept.reading is not None
    assert torch.equal(chunk(policy, batch, percept), chunk(policy, batch))


def test_an_open_gate_reads_what_was_seen_before():
    policy, batch = remembering(), tiny_batch()
    same = chunk(policy, batch, observed(policy, batch, batch))
    other = chunk(policy, batch, observed(policy, other_batch(), batch))
    assert not torch.allclose(same, other)


def test_the_way_in_learns_at_once_and_the_writing_once_it_is_open():
    for opened in (False, True):
        policy, batch = remembering(opened=opened).train(), tiny_batch()
        state = policy.model.recall.memory.begin(2)
        percept, state = policy.model.observe(batch, state, torch.zeros(2))
        policy.model.loss(batch | {"action": torch.randn(2, 6, 7)}, percept).backward()
        recall = policy.model.recall
        assert recall.fuse.weight.grad.abs().sum() > 0
        assert (recall.details[0].weight.grad.abs().sum() > 0) == opened


def test_what_is_written_does_not_come_from_proprioception():
    policy, batch = remembering(), tiny_batch()
    moved = batch | {"observation.state": batch["observation.state"] + 1}
    assert torch.equal(policy.model.perceive(batch).feature, policy.model.perceive(moved).feature)


def test_where_the_tool_was_is_told_apart_by_the_reading():
    policy, batch = remembering(), tiny_batch()
    moved = batch | {"observation.state": batch["observation.state"] + 1}
    here, elsewhere = observed(policy, batch, batch), observed(policy, moved, batch)
    assert not torch.equal(here.reading, elsewhere.reading)


def test_shuffled_frames_cannot_train_a_memory():
    with pytest.raises(InvalidInputError, match="engram train --window"):
        remembering()(tiny_batch() | {"action": torch.randn(2, 6, 7)})


def test_lerobots_select_action_writes_every_step_and_forgets_at_reset():
    policy, batch = remembering(), tiny_batch(1)
    first = [policy.select_action(batch) for _ in range(4)]  # three of one chunk, one of the next
    state = policy._memory.arrays()
    assert state["memory.steps"].tolist() == [4.0]
    policy.reset()
    assert all(torch.equal(action, policy.select_action(batch)) for action in first)


def ablationed(ablation, *episodes, seed=0, began_ns=0):
    """Return the last reading after these episodes of batches."""
    policy, memory = remembering(), RecurrentState(ablation)
    with torch.no_grad():
        for batches in episodes:
            memory.forget(seed)
            for i, batch in enumerate(batches):
                percept = memory.percept(policy.model, batch, began_ns + i, 0.1 * i)
    return percept.reading


def test_a_ablation_takes_away_what_was_seen_and_nothing_else():
    one, other = tiny_batch(), other_batch()
    sound, zeroed = ablationed("", [one, one]), ablationed("zeroed", [one, one])
    assert not torch.allclose(sound, zeroed)
    torch.testing.assert_close(ablationed("zeroed", [other, one]), zeroed)  # what came before makes no difference
    assert not torch.allclose(ablationed("noise", [one, one]), sound)
    noise = ablationed("noise", [one, one])
    assert torch.equal(ablationed("noise", [one, one], began_ns=10**9), noise)  # whatever ran before it
    assert not torch.allclose(ablationed("noise", [one, one], seed=1), noise)


def test_noise_is_of_the_size_of_what_was_written():
    content = torch.zeros(1, 64, 8)
    content[:, -10:] = torch.randn(10, 8)
    assert _size(content) == content[:, -10:].std()
    assert _size(torch.zeros(1, 4, 8)) == 0


def test_swapped_memory_is_that_of_the_episode_before():
    one, other = tiny_batch(), other_batch()
    swapped = ablationed("swapped", [other, other], [one, one])
    torch.testing.assert_close(ablationed("swapped", [other, other], [other, one]), swapped)
    assert not torch.allclose(ablationed("swapped", [one, one], [one, one]), swapped)
    torch.testing.assert_close(ablationed("swapped", [one, one]), ablationed("zeroed", [one, one]))  # there is none yet


def test_an_unknown_ablation_is_named():
    with pytest.raises(UnknownNameError, match="unknown ablation 'removed'"):
        RecurrentState("removed")


@pytest.mark.parametrize("seed", [0, 1])
def test_the_way_in_opens_and_the_flow_head_acts_by_what_the_bank_was_shown(seed):
    torch.manual_seed(seed)
    shown = Shown("bank")
    optimizer = torch.optim.AdamW(shown.parameters(), 5e-3)
    for _ in range(150):
        _, pictures, chunk = shown.draw(12)
        optimizer.zero_grad()
        shown.loss(pictures, chunk).backward()
        torch.nn.utils.clip_grad_norm_(shown.parameters(), 1.0)
        optimizer.step()
    cue, pictures, _ = shown.draw(200)
    assert ((shown.last_action(pictures) > 0) == (cue > 0)).float().mean() > 0.95
    pictures[:, :2] = shown.common  # no cue: what is left tells nothing of it
    assert ((shown.last_action(pictures) > 0) == (cue > 0)).float().mean() < 0.7
