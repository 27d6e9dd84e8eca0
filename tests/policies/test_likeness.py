"""Looks of image cells: what is coloured counts, and is found again where it is now."""

import pytest
import torch

from engram.core.errors import InvalidInputError, WeightsError
from engram.policies.vla.likeness import ASPECTS, COLOR_TOKENS, Likeness, cell_colours

from .tiny import tiny_batch, tiny_config, tiny_policy

GREY, BLACK = (0.2, 0.2, 0.2), (-2.0, -2.0, -2.0)


def scene(cells: int = 16, **things: tuple[float, float, float]) -> torch.Tensor:
    """Return the colours (1, cells, 3) of a grey table, a black gripper in cell 0 and ``things`` in c1, ..."""
    colours = torch.tensor([GREY] * cells)
    colours[0] = torch.tensor(BLACK)
    for name, colour in things.items():
        colours[int(name[1:])] = torch.tensor(colour)
    return colours[None]


def colour(generator: torch.Generator) -> tuple[float, float, float]:
    """Return a strong colour: one channel as of the table, one dark, one between."""
    values = torch.tensor([0.3, -1.9, -1.0])[torch.randperm(3, generator=generator)]
    return tuple((values + 0.3 * torch.randn(3, generator=generator)).tolist())


def test_a_cell_has_the_mean_colour_of_its_pixels():
    image = torch.zeros(1, 3, 4, 4)
    image[0, 0, :2, 2:] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    cells = cell_colours([image, image + 1], 2)
    assert cells.shape == (1, 8, 3)
    assert cells[0, :, 0].tolist() == [0, 2.5, 0, 0, 1, 3.5, 1, 1]


def test_before_anything_is_learned_a_colour_is_found_where_it_is_now_and_not_where_it_was():
    torch.manual_seed(0)
    generator, right = torch.Generator().manual_seed(1), 0
    for _ in range(60):
        wanted, others = colour(generator), [colour(generator) for _ in range(2)]
        places = (1 + torch.randperm(15, generator=generator)).tolist()
        likeness = Likeness(0)
        looks = likeness.color_tokens(scene(**{f"c{places[0]}": wanted}))
        now = scene(**{f"c{p}": c for p, c in zip(places[1:4], (wanted, *others), strict=True)})
        alike = likeness(torch.zeros(1, 8), looks, now).unflatten(1, (ASPECTS, -1)).sum(1)
        right += int(alike.argmax()) == places[1]
    assert right / 60 > 0.6  # a guess among the three: a third


def test_grey_is_like_nothing_and_no_cell_counts_more_than_a_coloured_one():
    torch.manual_seed(0)
    likeness = Likeness(0)
    red = likeness.color_tokens(scene(c5=(0.0, -1.9, -1.7)))
    alike = likeness(torch.zeros(1, 8), red, scene(c9=(0.0, -1.9, -1.7))).unflatten(1, (ASPECTS, -1))
    assert (alike[0, :, 9] > alike[0, :, 3] + 3).all()


def test_a_memory_without_looks_learns_what_to_want_from_its_reading():
    likeness = Likeness(8)
    reading = torch.randn(2, 8, requires_grad=True)
    likeness(reading, torch.zeros(2, 0), scene(c5=(0.0, -1.9, -1.7)).expand(2, -1, -1))[:, 5].sum().backward()
    assert (reading.grad.abs().sum(1) > 0).all()
    assert likeness.want[1].weight.shape == (COLOR_TOKENS, 8)


@pytest.mark.parametrize("memory", ["bank", "gru"])
def test_colours_alone_reach_the_chunk_through_memory(memory):
    policy = tiny_policy(memory=memory, memory_steps=4, memory_events=3, memory_cells_side=2)
    with torch.no_grad():
        policy.model.recall.fuse.weight.normal_()
        state = policy.model.recall.memory.begin(2)
        percept, _ = policy.model.observe(tiny_batch(), state, torch.zeros(2))
        there = policy.model._condition(percept, tiny_batch()["observation.state"])
        other = type(percept)(**{**vars(percept), "colours": percept.colours.flip(1)})
        assert percept.colours.shape == (2, 8, 3)
        assert not torch.allclose(policy.model._condition(other, tiny_batch()["observation.state"]), there)


def test_without_cells_there_are_no_colours_and_weights_with_them_are_refused(tmp_path):
    plain = tiny_policy(memory="bank", memory_cells_side=0)
    assert plain.model.perceive(tiny_batch()).colours is None
    assert not any("likeness" in name or "look_back" in name for name in plain.state_dict())
    from safetensors.torch import save_file

    from engram.policies.checkpoint import read_weights

    save_file(dict(tiny_policy(memory="bank").state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"likeness|intend|look_back"):
        read_weights(tmp_path / "model.safetensors", plain)


@pytest.mark.parametrize("side", [-1, 33])
def test_cells_that_no_image_has_are_refused(side):
    with pytest.raises(InvalidInputError, match=rf"memory_cells_side: {side}, expected 0\.\.32"):
        tiny_config(memory_cells_side=side)
