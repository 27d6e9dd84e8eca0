"""What the memory's services are asked and answer."""

from __future__ import annotations

from geometry_msgs.msg import Transform
from scipy.spatial.transform import Rotation

from engram.core.contracts import MemoryAnswer
from engram.core.types import Pose
from engram.memory.graph.conflicts import Conflict
from engram.memory.storage.se2 import PlaneTransform
from engram.nodes.messages.basics import from_stamp, point, wxyz, xyz
from engram.nodes.messages.scene import node_to_msg
from engram.runtime.memory_requests import Asked
from engram_interfaces.msg import MemoryConflict
from engram_interfaces.srv import MemoryQuery


def asked_from_msg(msg: MemoryQuery.Request) -> Asked:
    """Return what a client of ``memory/query`` says."""
    return Asked(
        text=msg.text,
        near=msg.near,
        place=xyz(msg.place) if msg.use_place else None,
        radius_m=msg.radius if msg.radius > 0 else float("inf"),
        robot_place=xyz(msg.robot_place) if msg.use_robot_place else None,
        at_ns=from_stamp(msg.at),
        believed_at_ns=from_stamp(msg.believed_at),
        limit=msg.limit,
    )


def answer_to_msg(found: MemoryAnswer) -> MemoryQuery.Response:
    """Return what the memory answered."""
    msg = MemoryQuery.Response(answer=found.text, confidence=float(found.confidence))
    msg.nodes = [node_to_msg(node) for node in found.nodes]
    msg.scores = [float(score) for score in found.scores]
    msg.evidence_ids = list(dict.fromkeys(name for one in found.evidence for name in one.ids))
    msg.evidence = [f"{one.source}: {one.text}" for one in found.evidence]
    msg.age = float(found.age_s) if found.nodes else -1.0
    if found.advice is not None:
        msg.advice, msg.look = found.advice.text, bool(found.advice.look)
        if found.advice.place is not None:
            msg.look_at = point(found.advice.place)
        msg.route = [point(place) for place in found.advice.route]
        msg.route_chances = list(found.advice.chances)
        msg.route_labels = list(found.advice.labels)
    return msg


def conflict_to_msg(conflict: Conflict) -> MemoryConflict:
    """Return a pair that may be one object or two."""
    return MemoryConflict(kind=conflict.kind, ours=conflict.ours, theirs=conflict.theirs, words=conflict.words)


def guess_from_msg(msg: Transform) -> PlaneTransform | None:
    """Return the turn and shift of ``msg`` in the plane; a rotation of all zeros is none."""
    turn = wxyz(msg.rotation)
    if not turn.any():
        return None
    pose = Pose(xyz(msg.translation), turn)
    yaw = float(Rotation.from_quat(pose.quaternion, scalar_first=True).as_euler("zyx")[0])
    return PlaneTransform(yaw, pose.position)
