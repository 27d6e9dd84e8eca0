"""Messages that are too large are refused by the field's name before anything of them is converted or kept."""

from array import array

import numpy as np
import pytest
from sensor_msgs.msg import Image, JointState

from engram.core.errors import InvalidInputError
from engram.nodes import messages
from engram.nodes.messages.basics import reshape
from engram.runtime import bounds
from engram.runtime.bounds import ITEMS_MAX, TEXT_MAX, check_sizes, size_of
from engram_interfaces.msg import ActionChunk, ObjectObservation, SceneObservation, TaskStatus, WeightChunk


@pytest.mark.parametrize(
    ("msg", "words"),
    [
        (TaskStatus(instruction="x" * (TEXT_MAX + 1)), "TaskStatus.instruction: 65537 long, at most 65536"),
        (JointState(name=["x"] * (ITEMS_MAX + 1)), "JointState.name: 65537 long, at most 65536"),
        (JointState(name=["x" * (TEXT_MAX + 1)]), "JointState.name: a text of 65537 characters, at most 65536"),
        (
            SceneObservation(objects=[ObjectObservation(label="x" * (TEXT_MAX + 1))]),
            "SceneObservation.objects.label: 65537 long",
        ),
    ],
)
def test_a_field_that_is_too_large_is_named(msg, words):
    with pytest.raises(InvalidInputError, match=words):
        check_sizes(msg)


def test_numbers_are_bounded(monkeypatch):
    monkeypatch.setattr(bounds, "NUMBERS_MAX", 100)
    monkeypatch.setattr(bounds, "_FIELDS", {})
    check_sizes(ActionChunk(actions=array("d", [0.0] * 100)))
    with pytest.raises(InvalidInputError, match=r"ActionChunk.actions: 101 long, at most 100"):
        check_sizes(ActionChunk(actions=array("d", [0.0] * 101)))


def test_dimensions_whose_product_wraps_around_fit_nothing():
    """2^32 * 2^32 is 0 in 64 bits."""
    with pytest.raises(InvalidInputError, match="0 values, expected 4294967296 x 4294967296"):
        reshape("actions", array("d"), (1 << 32, 1 << 32), np.float64)


def test_an_image_of_four_billion_columns_is_refused_by_its_size():
    image = Image(encoding="rgb8", height=1, width=(1 << 32) - 1, step=0)
    with pytest.raises(InvalidInputError, match="size 4294967295 x 1, expected 1 x 1 to 16384 x 16384"):
        messages.color_from_msg(image, "front")


def test_what_a_message_takes_is_told_in_bytes():
    empty = size_of(ActionChunk())
    assert 0 < empty < 1 << 14
    assert size_of(ActionChunk(actions=array("d", [0.0] * 1000))) - empty == 8000
    assert size_of(WeightChunk(data=array("B", bytes(1 << 16)))) >= 1 << 16
    assert size_of(SceneObservation(objects=[ObjectObservation(label="x" * 5000)])) > 5000
