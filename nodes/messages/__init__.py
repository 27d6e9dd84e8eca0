"""Every conversion between core types and ROS messages; nothing else in Engram touches a message field.

Those for questions to the memory are in :mod:`engram.nodes.messages.requests` alone, as they load the memory.
Reading checks everything (encodings, sizes, lengths, finiteness) and raises
:class:`~engram.core.errors.InvalidInputError` naming the offender; writing takes values that core already checked.
"""

from engram.nodes.messages.basics import (
    from_stamp,
    header,
    optical_frame,
    point,
    pose_from_msg,
    pose_from_transform,
    pose_to_msg,
    pose_to_transform,
    to_stamp,
    xyz,
)
from engram.nodes.messages.compressed import color_to_compressed, depth_to_compressed
from engram.nodes.messages.control import (
    chunk_from_msg,
    chunk_to_msg,
    command_from_msg,
    command_to_msg,
    intervention_from_msg,
    intervention_to_msg,
    status_from_msg,
    status_to_msg,
    verdict_from_msg,
    verdict_to_msg,
)
from engram.nodes.messages.detections import detections_from_msg
from engram.nodes.messages.diagnostics import condition_to_msg, conditions_from_msg
from engram.nodes.messages.learning import (
    ack_to_msg,
    experience_from_msg,
    gone_to_msg,
    manifest_from_msg,
    manifest_to_msg,
    transition_from_msg,
    transition_to_msg,
    weight_chunks_to_msgs,
)
from engram.nodes.messages.scene import (
    graph_from_msg,
    graph_to_msg,
    node_from_msg,
    node_to_msg,
    scene_from_msg,
    scene_to_msg,
    tokens_from_msg,
    tokens_to_msg,
)
from engram.nodes.messages.sensing import (
    camera_info_to_msg,
    color_from_msg,
    color_to_msg,
    depth_from_msg,
    depth_to_msg,
    intrinsics_from_msg,
    joints_from_msg,
    joints_to_msg,
)
