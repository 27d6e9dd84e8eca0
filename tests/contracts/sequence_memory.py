"""The laws that every SequenceMemory keeps: many steps at once are many single steps, and episodes do not mix."""

from __future__ import annotations

from abc import abstractmethod

import pytest
import torch

from engram.policies.sequence_memory import Moments, SequenceMemory, choose

DIM, FEATURE, BATCH, STEPS = 8, 24, 3, 40


def moments(batch: int = BATCH, steps: int = STEPS, seed: int = 0) -> Moments:
    """Return features that wander, at 10 Hz, along a way through space."""
    generator = torch.Generator().manual_seed(seed)
    feature = torch.randn(batch, steps, FEATURE, generator=generator).cumsum(1) * 0.5
    place = torch.randn(batch, steps, 3, generator=generator).cumsum(1) * 0.2
    return Moments(feature, torch.arange(steps).expand(batch, -1) * 0.1, place)


def queries(batch: int = BATCH, steps: int = STEPS) -> torch.Tensor:
    """Return one question a step."""
    return torch.randn(batch, steps, DIM, generator=torch.Generator().manual_seed(9))


class SequenceMemoryContract:
    """Subclass as ``TestX`` and say how to make one."""

    @abstractmethod
    def make(self) -> SequenceMemory:
        """Return a memory for features (24,), d = 8, that 40 steps overfill; always the same one."""

    def test_many_steps_at_once_are_the_same_as_one_by_one(self):
        memory, seen, asked = self.make(), moments(), queries()
        readings, last = memory.unroll(memory.begin(BATCH), seen, asked)
        state = memory.begin(BATCH)
        for step in range(STEPS):
            state = memory.write(state, seen.at(step))
            torch.testing.assert_close(memory.read(state, asked[:, step], seen.at(step)), readings[:, step])
        for name, tensor in last.items():
            torch.testing.assert_close(tensor, state[name], msg=name)

    def test_what_is_not_asked_for_changes_nothing_of_what_is(self):
        memory, seen, asked = self.make(), moments(), queries()
        wanted = torch.rand(BATCH, STEPS, generator=torch.Generator().manual_seed(1)) < 0.3
        for some in (wanted, torch.zeros_like(wanted)):
            readings, last = memory.unroll(memory.begin(BATCH), seen, asked)
            chosen, same = memory.unroll(memory.begin(BATCH), seen, asked, some)
            torch.testing.assert_close(chosen[some], readings[some])
            assert chosen.shape == readings.shape
            for name, tensor in last.items():
                torch.testing.assert_close(same[name], tensor, msg=name)

    def test_many_steps_at_once_have_the_gradients_of_one_by_one(self):
        memory, together, apart, asked = self.make(), moments(), moments(), queries()
        together.feature.requires_grad_(), apart.feature.requires_grad_()
        memory.unroll(memory.begin(BATCH), together, asked)[0].square().sum().backward()
        state, readings = memory.begin(BATCH), []
        for step in range(STEPS):
            state = memory.write(state, apart.at(step))
            readings.append(memory.read(state, asked[:, step], apart.at(step)))
        torch.stack(readings, 1).square().sum().backward()
        torch.testing.assert_close(together.feature.grad, apart.feature.grad, rtol=1e-3, atol=1e-4)

    def test_a_sequence_may_be_cut_anywhere(self):
        memory, seen, asked = self.make(), moments(), queries()
        whole, last = memory.unroll(memory.begin(BATCH), seen, asked)
        state, parts = memory.begin(BATCH), []
        for part in (slice(0, 7), slice(7, 8), slice(8, STEPS)):
            cut = Moments(seen.feature[:, part], seen.time_s[:, part], seen.place[:, part])
            reading, state = memory.unroll(state, cut, asked[:, part])
            parts.append(reading)
        torch.testing.assert_close(torch.cat(parts, 1), whole)
        for name, tensor in last.items():
            torch.testing.assert_close(tensor, state[name], msg=name)

    def test_episodes_of_a_batch_do_not_mix(self):
        memory, seen, asked = self.make(), moments(), queries()
        together, _ = memory.unroll(memory.begin(BATCH), seen, asked)
        alone = Moments(seen.feature[1:2], seen.time_s[1:2], seen.place[1:2])
        readings, _ = memory.unroll(memory.begin(1), alone, asked[1:2])
        torch.testing.assert_close(readings[0], together[1])

    def test_writing_leaves_the_old_state_as_it_was_and_keeps_its_shapes(self):
        memory, seen = self.make(), moments()
        state = memory.begin(BATCH)
        before = {name: tensor.clone() for name, tensor in state.items()}
        after = memory.write(state, seen.at(0))
        assert all(torch.equal(state[name], before[name]) for name in before)
        assert {n: (t.shape, t.dtype) for n, t in after.items()} == {n: (t.shape, t.dtype) for n, t in before.items()}

    def test_an_episode_can_begin_anew_beside_others_that_go_on(self):
        memory, seen = self.make(), moments()
        _, state = memory.unroll(memory.begin(BATCH), seen, queries())
        fresh = memory.begin(BATCH)
        mixed = choose(torch.tensor([False, True, False]), fresh, state)
        for name, tensor in mixed.items():
            assert torch.equal(tensor[1], fresh[name][1]), name
            assert torch.equal(tensor[0], state[name][0]), name

    def test_what_was_written_reaches_the_reading_and_its_gradient_the_writing(self):
        memory, seen, asked = self.make(), moments(steps=4), queries(steps=4)
        feature = seen.feature.requires_grad_()
        readings, _ = memory.unroll(memory.begin(BATCH), seen, asked)
        readings[:, -1].square().sum().backward()
        assert (feature.grad[:, 0].abs().sum(-1) > 0).all()

    def test_a_long_episode_stays_finite(self):
        memory = self.make()
        with torch.no_grad():
            readings, state = memory.unroll(memory.begin(1), moments(1, 400), queries(1, 400))
        assert torch.isfinite(readings).all()
        assert all(torch.isfinite(tensor).all() for tensor in state.values())

    def test_the_content_is_named(self):
        memory = self.make()
        assert memory.CONTENT
        assert set(memory.CONTENT) <= set(memory.begin(1))

    @pytest.mark.parametrize("steps", [1, 2])
    def test_reading_changes_nothing(self, steps):
        memory, seen, asked = self.make(), moments(steps=steps), queries(steps=steps)
        _, state = memory.unroll(memory.begin(BATCH), seen, asked)
        first = memory.read(state, asked[:, -1], seen.at(-1))
        assert torch.equal(memory.read(state, asked[:, -1], seen.at(-1)), first)
