"""What a person who takes over goes on from: the gripper as it was commanded last."""

from __future__ import annotations

import numpy as np
import pytest
import rclpy

from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk
from engram.nodes import messages
from engram.nodes.handover import Handover
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from tests.core.gantry import GANTRY, joints

pytestmark = pytest.mark.ros
SECOND_NS = 10**9


def executed(stamp_ns: int, gripper: float, author: str = "base") -> ActionChunkMsg:
    row = np.append(np.zeros(6), gripper)[None]
    return messages.chunk_to_msg(ActionChunk(stamp_ns, 1, "ee_delta", row, 0.1, 1, author))


@pytest.fixture
def handover():
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("person", context=context)
    yield Handover(node, "ann")
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def gripper(handover: Handover) -> float:
    return handover.seen(joints(), GANTRY).gripper


def test_a_row_that_was_overtaken_says_nothing_of_the_gripper(handover: Handover) -> None:
    handover.on_executed(executed(20 * SECOND_NS, 1.0))
    handover.on_executed(executed(20 * SECOND_NS - 1, -1.0, "human:bob"))
    assert (gripper(handover), handover.driver) == (1.0, "base")
    handover.on_executed(executed(20 * SECOND_NS, 0.5))  # shown again
    assert gripper(handover) == 0.5
    handover.on_executed(executed(SECOND_NS, -1.0))  # the simulation was restarted
    assert gripper(handover) == -1.0
    handover.on_executed(executed(2 * SECOND_NS, 1.0))
    assert gripper(handover) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_refused(handover: Handover, value: float) -> None:
    handover.on_executed(executed(SECOND_NS, 1.0))
    bad = executed(2 * SECOND_NS, 0.0, "human:bob")
    bad.actions[-1] = value
    with pytest.raises(InvalidInputError, match=r"ActionChunk\.actions"):
        handover.on_executed(bad)
    assert (gripper(handover), handover.driver) == (1.0, "base")
