import numpy as np
import pytest

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError


def test_result_does_not_alias_a_reused_buffer():
    buffer = np.zeros(3)
    kept = checked("x", buffer, (3,))
    view = buffer[:]
    view.flags.writeable = False
    kept_view = checked("x", view, (3,))
    buffer[:] = 7.0
    assert kept.tolist() == [0, 0, 0]
    assert kept_view.tolist() == [0, 0, 0]


def test_result_is_read_only_and_passes_through_unchanged_the_second_time():
    once = checked("x", [1.0, 2.0], (2,))
    assert not once.flags.writeable
    assert checked("x", once, (2,)) is once


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, 2.0], r"pose: shape \(2,\), expected \(3\)"),
        ([1.0, np.nan, np.inf], "pose: 2 of 3 values are not finite"),
        (["a", "b", "c"], "pose: dtype <U1 cannot become float64"),
        ([1j, 0, 0], "pose: dtype complex128 cannot become float64"),
    ],
)
def test_errors_name_the_offender(value, message):
    with pytest.raises(InvalidInputError, match=message):
        checked("pose", value, (3,))


def test_float_image_is_not_silently_truncated_to_uint8():
    with pytest.raises(InvalidInputError, match="float64 cannot become uint8"):
        checked("image", np.full((2, 2, 3), 0.5), (None, None, 3), np.uint8)
