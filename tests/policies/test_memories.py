"""Memories of the episode: the contract's laws for each, and numbers worked out by hand."""

import functools
import math
from dataclasses import replace

import pytest
import torch

from engram.core.errors import UnknownNameError
from engram.policies.sequence_memory import Moments, check_memory
from engram.policies.sequence_memory.bank import Bank, BankConfig, Entries, append, row_of
from engram.policies.sequence_memory.base import MomentCode, SequenceMemory
from engram.policies.sequence_memory.fast_forgetful import FastForgetful
from engram.policies.sequence_memory.first_frame import FirstFrame
from engram.policies.sequence_memory.frame_stack import FrameStack
from engram.policies.sequence_memory.gru import Gru
from engram.policies.sequence_memory.retrieval import ChunksConfig, PlaceChunks, RetrievalMemory, TimeChunks
from engram.policies.vla.layers import Attention
from tests.contracts.sequence_memory import DIM, FEATURE, SequenceMemoryContract, moments, queries


def moment(feature, time_s=0.0, place=(0.0, 0.0, 0.0)):
    return Moments(torch.tensor([feature]), torch.tensor([time_s]), torch.tensor([place]))


class TestBank(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return Bank(BankConfig(DIM, heads=2, details=2, steps=6, events=3))


class TestBankWithLooks(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return Bank(BankConfig(DIM, heads=2, details=1, steps=6, events=3, color_tokens=8))


class TestFirstFrame(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return FirstFrame(FEATURE, DIM)


class TestFrameStack(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return FrameStack(FEATURE, DIM, steps=5)


class TestGru(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return Gru(FEATURE, DIM, hidden=12)


class TestFastForgetful(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return FastForgetful(FEATURE, DIM, traces=6, contexts=3)


class TestTimeChunks(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return TimeChunks(ChunksConfig(FEATURE, DIM, heads=2, chunks=4, length=3, read=2))


class TestRetrievedChunks(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return RetrievalMemory(ChunksConfig(FEATURE, DIM, heads=2, chunks=4, length=3, read=4))


class TestPlaceChunks(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return PlaceChunks(ChunksConfig(FEATURE, DIM, heads=2, chunks=4, length=4, read=4))


def filled(*features):
    """Return a bank of three slots with these features, written at 0, 1, 2, ... s at x = 0, 1, 2, ..."""
    bank = Entries.empty(1, 3, 2, torch.device("cpu")).rows()
    for i, feature in enumerate(features):
        bank = append(bank, row_of(moment(feature, float(i), (float(i), 0.0, 0.0))), 2)
    return Entries.of_rows(bank)


def test_entries_stand_in_order_of_time_packed_to_the_right():
    bank = filled([1.0, 0.0], [0.0, 1.0])
    assert bank.feature[0].tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    assert bank.steps[0].tolist() == [0.0, 1.0, 1.0]
    assert bank.time_s[0].tolist() == [0.0, 0.0, 1.0]


def test_over_capacity_the_most_similar_neighbours_become_their_mean():
    # cosines of the neighbours: 0, 1 and 0: the second and the third merge
    bank = filled([1.0, 0.0], [0.0, 1.0], [0.0, 3.0], [1.0, 0.0])
    assert bank.feature[0].tolist() == [[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]
    assert bank.steps[0].tolist() == [1.0, 2.0, 1.0]
    assert bank.time_s[0].tolist() == [0.0, 1.5, 3.0]
    assert bank.place[0, :, 0].tolist() == [0.0, 1.5, 3.0]


def test_a_mean_counts_every_step_behind_it():
    # steps 1 and 3 (mean 2, two steps) and 6.5: (2 * 2 + 6.5) / 3 = 3.5
    bank = filled([1.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.0, 6.5], [-1.0, 0.0])
    assert bank.feature[0].tolist() == [[1.0, 0.0], [0.0, 3.5], [-1.0, 0.0]]
    assert bank.steps[0].tolist() == [1.0, 3.0, 1.0]
    assert bank.time_s[0].tolist() == [0.0, 2.0, 4.0]


def test_merging_passes_gradients_to_every_step_by_its_share():
    steps = [torch.tensor([[0.0, y]], requires_grad=True) for y in (1.0, 2.0, 3.0, 4.0)]
    bank = Entries.empty(1, 2, 2, torch.device("cpu")).rows()
    for feature in steps:
        bank = append(bank, row_of(Moments(feature, torch.zeros(1), torch.zeros(1, 3))), 2)
    bank = Entries.of_rows(bank)
    assert bank.steps[0].tolist() == [3.0, 1.0]
    bank.feature[0, 0].sum().backward()
    assert [feature.grad.sum().item() for feature in steps[:3]] == pytest.approx([2 / 3] * 3)
    assert steps[3].grad.abs().sum() == 0


def test_windows_that_are_learnt_from_carry_to_the_bit_what_was_written_step_by_step():
    """Of a bank full of a held arm's steps, all of them alike, a rounding would decide which two merge."""
    bank, seen, asked = TestBank().make(), moments(seed=1), queries()
    seen.feature[:, 2:] = seen.feature[:, 2:3]
    seen.feature.requires_grad_()
    carried = state = bank.begin(3)
    for part in torch.arange(40).split(8):
        cut = Moments(seen.feature[:, part], seen.time_s[:, part], seen.place[:, part])
        _, carried = bank.unroll({name: tensor.detach() for name, tensor in carried.items()}, cut, asked[:, part])
        for step in range(8):
            state = bank.write(state, cut.at(step))
    for name, tensor in carried.items():
        assert torch.equal(tensor, state[name]), name


def test_gradients_reach_the_steps_of_a_window_before_as_one_by_one():
    bank, asked = TestBank().make(), queries()
    gradients = []
    for unroll in (bank.unroll, functools.partial(SequenceMemory.unroll, bank)):
        seen, state = moments(), bank.begin(3)
        seen.feature.requires_grad_()
        for part in torch.arange(40).split(8):
            cut = Moments(seen.feature[:, part], seen.time_s[:, part], seen.place[:, part])
            reading, state = unroll(state, cut, asked[:, part])
        reading.square().sum().backward()
        gradients.append(seen.feature.grad)
    assert (gradients[0][:, :32] != 0).any()
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def events(details, surprise=4.0):
    """Return at which steps a bank of one perceptual token wrote an event, for these tokens (2,)."""
    bank = Bank(BankConfig(2, 1, details=1, steps=4, events=8, surprise=surprise))
    state, counts = bank.begin(1), []
    for i, detail in enumerate(details):
        state = bank.write(state, moment([0.0, 0.0, *detail], 0.1 * i))
        counts.append(int(state["perceptual.count"].sum()))
    return [i for i, n in enumerate(counts) if n > (counts[i - 1] if i else 0)]


def test_the_first_step_and_a_sudden_change_are_events_and_a_still_picture_is_not():
    still, other = [1.0, 0.01], [0.2, 1.0]
    wobble = [[1.0, 0.01 * (-1) ** i] for i in range(5)]
    assert events([still] * 4 + [other] * 4) == [0, 4]
    assert events([*wobble, other, other]) == [0, 1, 5]  # the first change of all is unusual too


def test_slow_change_is_an_event_once_it_has_gone_far_enough():
    # an even turn: 1 - cos of n steps is a little less than n^2 times that of one, above 4 from the third step on
    turn = torch.arange(8) * 0.1
    assert events(torch.stack((turn.cos(), turn.sin()), 1).tolist()) == [0, 1, 4, 7]


def test_a_frame_stack_ends_where_it_ends():
    memory, seen, asked = TestFrameStack().make(), moments(), queries()
    seen.feature.requires_grad_()
    memory.unroll(memory.begin(3), seen, asked)[0][:, 20].sum().backward()
    felt = seen.feature.grad.abs().sum((0, 2)) > 0
    assert felt.nonzero().flatten().tolist() == [16, 17, 18, 19, 20]


def test_a_first_frame_is_all_that_is_kept_of_an_episode():
    memory, seen, asked = TestFirstFrame().make(), moments(), queries()
    seen.feature.requires_grad_()
    memory.unroll(memory.begin(3), seen, asked)[0][:, 20].sum().backward()
    felt = seen.feature.grad.abs().sum((0, 2)) > 0
    assert felt.nonzero().flatten().tolist() == [0]


def test_a_trace_halves_and_turns_as_its_gamma_says():
    memory = FastForgetful(1, 2, traces=1, contexts=1)
    with torch.no_grad():
        memory.decay.fill_(math.log(2))  # halves every step
        memory.turn.fill_(math.pi / 2)  # and turns a quarter
        memory.enter.weight.fill_(1.0), memory.enter.bias.zero_()
        memory.enter_gate.weight.zero_(), memory.enter_gate.bias.fill_(100.0)  # open
        seen = Moments(torch.tensor([[[8.0], [0.0], [0.0], [1.0]]]), torch.zeros(1, 4), torch.zeros(1, 4, 3))
        _, state = memory.unroll(memory.begin(1), seen, torch.zeros(1, 4, 2))
    # 8 after three steps: 8 / 2^3 = 1, turned by 3/4: -i; and the 1 that has just come
    assert state["real"].item() == pytest.approx(1.0, abs=1e-6)
    assert state["imaginary"].item() == pytest.approx(-1.0, abs=1e-6)


def test_fast_and_forgetful_in_parallel_is_sequential_over_a_thousand_steps():
    memory, seen, asked = TestFastForgetful().make().double(), moments(1, 1000), queries(1, 1000)
    seen = Moments(seen.feature.double() * 0.1, seen.time_s, seen.place)
    state = {name: tensor.double() for name, tensor in memory.begin(1).items()}
    with torch.no_grad():
        parallel, last = memory.unroll(state, seen, asked.double())
        for step in range(1000):
            state = memory.write(state, seen.at(step))
        torch.testing.assert_close(last["real"], state["real"], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(memory.read(state, asked[:, -1].double(), seen.at(-1)), parallel[:, -1])


def chunked(kind, places, **sizes):
    """Return the times in each chunk, oldest chunk first, after a step every second at these x."""
    memory = kind(ChunksConfig(1, 2, 1, **{"chunks": 3, "length": 2, **sizes}))
    state = memory.begin(1)
    for i, x in enumerate(places):
        state = memory.write(state, moment([1.0], float(i), (x, 0.0, 0.0)))
    kept = [times[full > 0].tolist() for times, full in zip(state["time_s"][0], state["filled"][0], strict=True)]
    return sorted(times for times in kept if times)


def test_chunks_of_time_are_steps_in_a_row_and_the_oldest_is_given_up():
    assert chunked(TimeChunks, [0.0] * 5) == [[0, 1], [2, 3], [4]]
    assert chunked(TimeChunks, [0.0] * 7) == [[2, 3], [4, 5], [6]]


def test_chunks_of_place_keep_the_newest_steps_of_each_place():
    assert chunked(PlaceChunks, [0.0, 1.0, 0.1, 1.1, 0.2]) == [[1, 3], [2, 4]]


def test_the_place_not_visited_for_longest_is_given_up():
    assert chunked(PlaceChunks, [0.0, 1.0, 2.0, 0.0, 3.0]) == [[0, 3], [2], [4]]


def test_when_an_entry_was_written_is_told_by_its_age_and_by_the_episodes_own_time():
    torch.manual_seed(0)
    code, waves = MomentCode(8), 2 * MomentCode.WAVES + 8
    time_s, here = torch.tensor([[0.2, 2.0]]), torch.zeros(1, 3)

    def at(now_s):
        now = Moments(torch.zeros(1, 1), torch.tensor([now_s]), here)
        return code(time_s, torch.ones(1, 2), torch.zeros(1, 2, 3), now)[0]

    soon, late = at(3.0), at(9.0)
    assert not torch.allclose(soon, late)  # their age is another
    with torch.no_grad():
        code.project.weight[:, :waves] = 0.0
    soon, late = at(3.0), at(9.0)
    torch.testing.assert_close(soon, late)  # when it was in the episode stays what it was
    assert not torch.allclose(soon[0], soon[1])


def test_the_second_stage_reads_only_the_chunks_that_matter():
    memory, seen, asked = TestTimeChunks().make(), moments(steps=12), queries(steps=12)
    seen.feature.requires_grad_()
    memory.config = replace(memory.config, read=1)
    memory.unroll(memory.begin(3), seen, asked)[0][0, -1].sum().backward()
    felt = seen.feature.grad[0].abs().sum(-1) > 0  # of one chunk; its relevance is 1 whatever the others hold
    assert felt.sum() == 3


def test_retrieval_finds_the_chunk_that_resembles_the_present_one():
    memory = RetrievalMemory(ChunksConfig(2, 2, 1, chunks=4, length=2, read=1))
    state = memory.begin(1)
    for i, feature in enumerate([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 2 + [[1.0, 0.1]] * 2):
        state = memory.write(state, moment(feature, float(i)))
    relevance = memory.relevance(state, torch.zeros(1, 4, 2), torch.zeros(1, 2))
    best = relevance.masked_fill(state["filled"].sum(2) == 0, -1e4).argmax(1)
    assert state["time_s"][0, best].flatten().tolist() == [0.0, 1.0]


def test_an_unknown_memory_is_an_error_that_lists_those_there_are():
    with pytest.raises(
        UnknownNameError, match=r"unknown memory 'bnak'; did you mean 'bank'\? valid: bank, fast_forgetful, "
    ):
        check_memory("bnak")


def test_a_single_query_finds_the_same_before_and_after_the_entries_are_projected():
    torch.manual_seed(0)
    attention, query, entries = Attention(DIM, heads=2), torch.randn(3, DIM), torch.randn(3, 7, DIM)
    mask = torch.rand(3, 7) > 0.4
    mask[:, 0] = True
    torch.testing.assert_close(attention.one(query, entries, mask), attention(query[:, None], entries, mask)[:, 0])


def test_the_bank_tells_those_who_watch_how_much_it_holds_and_since_when():
    bank = TestBank().make()
    seen, state = moments(batch=1), bank.begin(1)
    assert bank.described(state) == "0 moments, 0 events, the oldest 0.0 s ago"
    for step in range(4):
        state = bank.write(state, seen.at(step))
    events = int((state["perceptual.count"] > 0).sum())
    assert bank.described(state) == f"4 moments, {events} events, the oldest 0.3 s ago"


def test_the_bank_returns_looks_as_they_were_written():
    torch.manual_seed(0)
    bank = Bank(BankConfig(DIM, heads=2, details=1, steps=6, events=3, color_tokens=4))
    looks = [0.5, -2.0, 0.0, 7.0]
    written = moment([1.0] * DIM + [float(i) for i in range(DIM)] + looks)
    state = bank.write(bank.begin(1), written)
    assert bank.read(state, torch.randn(1, DIM), written)[0, DIM:].tolist() == pytest.approx(looks)


def test_an_empty_bank_has_no_looks():
    bank = Bank(BankConfig(DIM, heads=2, details=1, steps=6, events=3, color_tokens=4))
    now = moment([0.0] * (2 * DIM + 4))
    assert bank.read(bank.begin(1), torch.randn(1, DIM), now)[0, DIM:].tolist() == [0.0] * 4
