"""Drives the robot as a person: tells the safety node what they do, and that they hand back."""

from __future__ import annotations

import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher

from engram.core.robot import RobotConfig
from engram.core.stamped_buffer import clock_restarted
from engram.core.types import HumanAction, JointState
from engram.nodes import messages, qos
from engram.runtime.teleop import Seen, Wish
from engram_interfaces.msg import ActionChunk, Intervention

PERIOD_S = 0.05
"""Between two messages while a person drives; the safety node forgets one who is silent for 0.5 s [s]."""
NO_ACTION = np.zeros(7)


class Handover:
    """Publishes ``intervention`` from taking over to handing back, and nothing between: then another may take over."""

    def __init__(self, node: Node, who: str) -> None:
        self.who, self.drives = who, False
        self.driver = ""  # whose action was executed last
        self._node = node
        self._out: Publisher | None = None
        self._last = Wish(False)
        self._gripper: float | None = None  # as commanded last
        self._executed_ns = 0  # when [ns of the robot's clock]

    def on_executed(self, msg: ActionChunk) -> None:
        """Take note of what was executed; one that was overtaken says nothing any more.

        Raises:
            EngramError: it is no action, as one with values that are not finite.
        """
        row = messages.chunk_from_msg(msg)
        if row.stamp_ns < self._executed_ns and not clock_restarted(self._executed_ns, row.stamp_ns):
            return
        self._executed_ns, self.driver = row.stamp_ns, row.policy_version
        if row.space == "ee_delta" and row.actions.size == len(NO_ACTION):
            self._gripper = float(row.actions[-1, -1])

    def seen(self, joints: JointState, robot: RobotConfig) -> Seen:
        """Return the robot as a device wants to know it."""
        measured = 2.0 * robot.gripper_fraction(float(joints.positions[-1])) - 1.0
        gripper = measured if self._gripper is None else self._gripper
        return Seen(joints.positions, gripper, stamp_ns=joints.stamp_ns)

    def stand(self, stamp_ns: int) -> None:
        """Ask for no new motion, if the person drives now; the gripper stays as they have it."""
        last = self._last.action
        if not self.drives or last is None:
            return
        still = last if self._last.space == "joint_position" else np.append(NO_ACTION[:-1], last[-1])
        self.pass_on(Wish(True, self._last.space, still), stamp_ns)

    def pass_on(self, wish: Wish, stamp_ns: int) -> None:
        """Tell what the person does at ``stamp_ns`` of the robot's clock, or once that they hand back."""
        if not wish.drives and self._out is None:
            return
        self._out = self._out or self._node.create_publisher(Intervention, "intervention", qos.EVENTS)
        action = NO_ACTION if wish.action is None else wish.action
        human = HumanAction(stamp_ns, self.who, wish.drives, wish.space, action)
        self._out.publish(messages.intervention_to_msg(human))
        self.drives, self._last = wish.drives, wish
        if not wish.drives:
            self._out.wait_for_all_acked(Duration(seconds=0.5))
            self._node.destroy_publisher(self._out)
            self._out = None
