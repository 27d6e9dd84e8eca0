"""The robot whose memory it is: its profile, and where its hand is. No ROS."""

from __future__ import annotations

from engram.core.contracts import Kinematics
from engram.core.control import hand
from engram.core.registry import make_kinematics, make_robot
from engram.core.robot import RobotConfig
from engram.core.types import Embodiment, Hand, JointState

NO_ROBOT = "none"
"""Name of a robot without a description. Its memory knows no hand, and its page draws no arm."""


def described_robot(name: str) -> RobotConfig | None:
    """Return the robot called ``name``; None for ``NO_ROBOT``. Errors as of :func:`make_robot`."""
    return None if name == NO_ROBOT else make_robot(name)


class Body:
    """What a memory is told of its own robot.

    Args:
        name: of the robot; ``NO_ROBOT``: only its cameras, and whether it drives, are known.
        track_hand: joint states shall tell where the hand is.
        drives: a robot without a description has a mobile base.

    Raises:
        UnknownNameError, InvalidInputError: there is no such robot, or nothing tells where its hand is.
    """

    def __init__(self, name: str, *, track_hand: bool, drives: bool) -> None:
        self._robot = described_robot(name)
        self._kinematics: Kinematics | None = None
        self.profile = Embodiment("robot", mobile_base=drives)
        if self._robot is not None:
            self._kinematics = make_kinematics(self._robot) if track_hand else None
            self.profile = self._robot.embodiment()

    @property
    def has_hand(self) -> bool:
        """Whether joint states tell where its hand is."""
        return self._kinematics is not None

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joints of those joint states."""
        return self._robot.joint_names if self._robot is not None else ()

    def hand(self, joints: JointState | None, agent: str) -> Hand | None:
        """Return where the hand of ``agent`` is with these ``joints``; None where that is not known."""
        if joints is None or self._robot is None or self._kinematics is None:
            return None
        return hand(joints, self._kinematics, self._robot, agent)
