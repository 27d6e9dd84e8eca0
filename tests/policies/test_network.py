import pytest
import torch

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.context_rows import MEMORY_AGE_KEY, MEMORY_MASK_KEY, MEMORY_PLACE_KEY, MEMORY_TOKENS_KEY
from engram.core.errors import InvalidInputError
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY
from engram.policies.vla.flow import integrate
from engram.policies.vla.layers import spatial_softmax
from engram.policies.vla.network import BLACK, random_shift

from .tiny import tiny_batch, tiny_config, tiny_policy


def memory(size=2, k=3, readable=True, dim=384):
    generator = torch.Generator().manual_seed(2)
    return {
        MEMORY_TOKENS_KEY: torch.randn(size, k, dim, generator=generator),
        MEMORY_AGE_KEY: torch.rand(size, k, generator=generator) * 100,
        MEMORY_PLACE_KEY: torch.rand(size, k, 3, generator=generator),
        MEMORY_MASK_KEY: torch.full((size, k), readable),
    }


def sample(policy, batch):
    noise = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(3))
    return policy.predict_action_chunk(batch, noise=noise)


def opened(policy):
    with torch.no_grad():
        policy.model.memory.gate.fill_(1.0)
    return policy


def test_chunk_shape():
    assert sample(tiny_policy(), tiny_batch()).shape == (2, 6, 7)


def test_a_fresh_network_ignores_memory_to_the_bit():
    policy, batch = tiny_policy(), tiny_batch()
    assert torch.equal(sample(policy, batch), sample(policy, batch | memory()))


def test_an_open_gate_reads_memory_its_age_and_its_place():
    policy, batch = opened(tiny_policy()), tiny_batch()
    plain = sample(policy, batch | memory())
    assert not torch.equal(plain, sample(policy, batch))
    for key in (MEMORY_AGE_KEY, MEMORY_PLACE_KEY):
        other = memory()
        other[key] = other[key] + 1.0
        assert not torch.equal(plain, sample(policy, batch | other)), key


@pytest.mark.parametrize("empty", [memory(k=0), memory(readable=False)])
def test_empty_or_masked_memory_is_no_memory_to_the_bit(empty):
    policy, batch = opened(tiny_policy()), tiny_batch()
    assert torch.equal(sample(policy, batch), sample(policy, batch | empty))


def test_padding_changes_nothing_that_is_read():
    policy, batch, short = opened(tiny_policy()), tiny_batch(), memory()
    padded = {key: torch.cat((value, value * 0 + 7), dim=1) for key, value in short.items()}
    padded[MEMORY_MASK_KEY] = torch.tensor([[True] * 3 + [False] * 3] * 2)
    torch.testing.assert_close(sample(policy, batch | short), sample(policy, batch | padded))


def test_memory_of_another_length_is_refused_with_both_lengths():
    with pytest.raises(InvalidInputError, match="length 5, expected 384"):
        sample(tiny_policy(), tiny_batch() | memory(dim=5))


def test_what_is_read_comes_in_at_the_size_that_layers_expect():
    policy, batch, read = opened(tiny_policy()), tiny_batch(), []
    policy.model.memory.project.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    one = {name: value[:, :1] for name, value in memory().items()}
    one[MEMORY_TOKENS_KEY] = torch.nn.functional.one_hot(torch.tensor([[5], [5]]), 384).float()  # of unit length
    one[MEMORY_PLACE_KEY] = torch.tensor([[[0.5, -0.2, 0.02]]] * 2)
    one[MEMORY_AGE_KEY] = torch.tensor([[1.0]] * 2)
    sample(policy, batch | one)
    entry = read[0][0, 0]
    assert entry[5].item() == pytest.approx(19.596, abs=1e-3)  # sqrt(384)
    torch.testing.assert_close(entry[-4:], torch.tensor([0.693147, 5.0, -2.0, 0.2]))  # ln 2, decimetres


def test_age_and_place_count_beside_hundreds_of_numbers_of_an_embedding():
    weight = tiny_policy().model.memory.project.weight
    assert weight[:, -4:].std() > 5 * weight[:, :-4].std()


def test_a_policy_that_is_told_ranks_reads_the_order_and_another_does_not():
    turned = {name: value.flip(1) for name, value in memory().items()}
    for ranks, same in ((0, True), (2, False)):  # of three entries
        policy, batch = opened(tiny_policy(context_ranks=ranks)), tiny_batch()
        ways = [policy.model.perceive(batch | read).cognition for read in (memory(), turned)]
        assert torch.allclose(*ways, atol=1e-5) is same


def test_places_that_are_told_as_they_are_change_nothing_at_first_and_learn_with_the_gate_shut():
    policy, batch = tiny_policy(context_places=2), tiny_batch()
    plain = policy.model.perceive(batch).cognition
    assert torch.equal(policy.model.perceive(batch | memory()).cognition, plain)
    policy.train()(batch | memory() | {"action": torch.randn(2, 6, 7)})[0].backward()
    policy.eval()
    where = policy.model.memory.where.weight
    assert where.grad.abs().sum() > 0
    with torch.no_grad():
        where.normal_()
    told = policy.model.perceive(batch | memory()).cognition
    assert not torch.allclose(told, plain)
    hidden = memory() | {MEMORY_MASK_KEY: torch.zeros_like(memory()[MEMORY_MASK_KEY])}
    assert torch.equal(policy.model.perceive(batch | hidden).cognition, plain)
    one = {name: value[:, :1] for name, value in memory().items()}  # fewer entries than are told
    assert policy.model.perceive(batch | one).cognition.shape == plain.shape


def test_the_gate_learns_only_when_there_is_memory():
    policy = tiny_policy().train()
    chunk = {"action": torch.randn(2, 6, 7)}
    policy(tiny_batch() | chunk)[0].backward()
    assert policy.model.memory.gate.grad is None
    policy(tiny_batch() | chunk | memory())[0].backward()
    assert policy.model.memory.gate.grad.abs().sum() > 0


def test_instruction_changes_the_actions():
    policy, batch = tiny_policy(), tiny_batch()
    assert not torch.allclose(sample(policy, batch), sample(policy, batch | {LANGUAGE_KEY: -batch[LANGUAGE_KEY]}))


def test_proprioception_reaches_only_the_action_head():
    policy, batch = tiny_policy(), tiny_batch()
    other = batch | {"observation.state": batch["observation.state"] + 1}
    assert torch.equal(policy.model.perceive(batch).cognition, policy.model.perceive(other).cognition)
    assert not torch.equal(sample(policy, batch), sample(policy, other))


def test_withheld_proprioception_does_not_count():
    policy = tiny_policy(state_dropout=1.0, random_shift=0, brightness_jitter=0.0).train()
    batch = tiny_batch() | {"action": torch.randn(2, 6, 7)}
    losses = []
    for offset in (0.0, 5.0):
        torch.manual_seed(4)
        state = {"observation.state": batch["observation.state"] + offset}
        losses.append(policy(batch | state)[0].item())
    assert losses[0] == losses[1]


def test_a_sample_follows_the_velocities_that_training_learns():
    model, batch = tiny_policy().model.eval(), tiny_batch()
    condition = model._condition(model.perceive(batch), batch["observation.state"])
    noise = torch.randn(2, 1, 6, 7, generator=torch.Generator().manual_seed(3))
    plain = integrate([lambda x, time: model.head(x, time, condition)] * 5, noise)
    torch.testing.assert_close(integrate(model.head.at_steps(condition, 5), noise), plain)


def test_rows_left_out_are_not_learnt_and_those_beyond_the_end_are():
    model, batch = tiny_policy().model, tiny_batch()
    batch["action"] = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(4))

    def loss(**marks):
        torch.manual_seed(0)
        return model.eval().loss({**batch, **{key: torch.tensor(rows).expand(2, 6) for key, rows in marks.items()}})

    whole, ended = loss(), [False, False, False, True, True, True]
    assert loss(action_is_pad=ended) == whole  # LeRobot's mark: only left out, these rows would tell how far the end is
    assert loss(**{UNLEARNT_KEY: [False] * 6}) == whole != loss(**{UNLEARNT_KEY: ended})
    assert loss(**{UNLEARNT_KEY: [True] * 6}) == 0


def test_spatial_softmax_finds_the_peak():
    heat = torch.full((1, 2, 5, 5), -100.0)
    heat[0, 0, 0, 4] = 100.0  # top right: x = 1, y = -1
    heat[0, 1, 2, 1] = 100.0  # middle row, second column: x = -0.5, y = 0
    torch.testing.assert_close(spatial_softmax(heat), torch.tensor([[1.0, -0.5, -1.0, 0.0]]))


def test_random_shift_moves_whole_pixels_and_repeats_the_border():
    image = torch.arange(16.0).view(1, 1, 4, 4).expand(8, 3, 4, 4)
    torch.manual_seed(0)
    shifted = random_shift(image, 1)
    moves = []
    for one in shifted[:, 0]:
        dy, dx = int(one[1, 1]) // 4 - 1, int(one[1, 1]) % 4 - 1
        rows, columns = (torch.arange(4) + dy).clamp(0, 3), (torch.arange(4) + dx).clamp(0, 3)
        assert torch.equal(one, image[0, 0][rows][:, columns])
        moves.append((dy, dx))
    assert len(set(moves)) > 3


def test_training_shows_other_light_which_darkens_all_of_a_picture():
    """Scaled about its mean, as it once was, a picture changes in contrast alone: no lamp does that."""
    network = tiny_policy(random_shift=0, brightness_jitter=0.2).model.train()
    picture = torch.randn(1, 3, 8, 8).expand(64, 3, 8, 8)
    torch.manual_seed(0)
    lit = network._augment(picture)
    brighter = (lit - BLACK) / (picture - BLACK)
    torch.testing.assert_close(brighter, brighter[:, :1, :1, :1].expand_as(brighter))
    assert 0.8 <= brighter.min() < 0.85 and 1.15 < brighter.max() <= 1.2
    assert (lit.mean((1, 2, 3)) - picture[0].mean()).abs().max() > 0.5
    assert network.eval()._augment(picture) is picture


def test_wrong_configurations_are_named():
    with pytest.raises(InvalidInputError, match="n_action_steps: 9"):
        tiny_config(n_action_steps=9)
    with pytest.raises(InvalidInputError, match="multiple of heads"):
        tiny_config(dim=15)
