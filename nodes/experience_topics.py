"""The topics that experience travels by from the policy node to the learners: experience and experience/ack."""

from __future__ import annotations

from pathlib import Path

from engram.core.contracts import Kinematics
from engram.core.robot import RobotConfig
from engram.core.types import Transition
from engram.learning.experience.spool import SpoolConfig
from engram.learning.experience.spool_stream import Gone
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.runtime.experience_outbox import ExperienceOutbox, open_spool_or_report
from engram_interfaces.msg import Experience, ExperienceAck

PERIOD_S = 0.2
"""Time between two commits of the spool, and two batches [s]."""


class ExperiencePublisher:
    """The publisher of ``node``, as :class:`engram.runtime.experience_outbox.ExperienceLink`."""

    def __init__(self, node: EngramNode) -> None:
        self._node, self._publisher = node, node.create_publisher(Experience, "experience", qos.EXPERIENCE)

    def listeners(self) -> int:
        """Return how many learners listen."""
        return self._publisher.get_subscription_count()

    def send(self, what: Transition | Gone) -> None:
        """Publish a transition, or word of what is gone."""
        msg = messages.gone_to_msg(what) if isinstance(what, Gone) else messages.transition_to_msg(what)
        self._publisher.publish(msg)

    def close(self) -> None:
        """Take the topic back."""
        self._node.destroy_publisher(self._publisher)


def open_outbox(node: EngramNode, folder: Path, kinematics: Kinematics, robot: RobotConfig) -> ExperienceOutbox | None:
    """Return what sends the experience of ``node`` from a spool in ``folder``, for as long as the node is active.

    None: the disk refuses it. The robot works on without.
    """
    spool = open_spool_or_report(folder, node.config.robot_id, SpoolConfig(window=qos.EXPERIENCE.depth), node.health)
    if spool is None:
        return None
    link, thread = ExperiencePublisher(node), node.worker("experience", lambda job: job(), capacity=4096)
    outbox = ExperienceOutbox(spool, kinematics, robot, thread, link, node.health, node.report)

    def acknowledged(msg: ExperienceAck) -> None:
        outbox.received(msg.robot_id, msg.boot_id, msg.sequence)

    subscribe_bound(node, ExperienceAck, "experience/ack", acknowledged, qos.EXPERIENCE, every=True, shared=True)
    node.every(PERIOD_S, outbox.send, "experience")
    return outbox
