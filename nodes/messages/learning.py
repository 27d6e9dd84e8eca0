"""Messages between policy node and learner: experience and its receipts, manifests and weight slices."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import ActionSource, Lineage, PolicyManifest, Transition
from engram.learning.experience.spool_stream import Gone
from engram.learning.weights import announcements, slices
from engram.nodes.messages.basics import doubles, from_stamp, header, octets, to_stamp
from engram.nodes.messages.scene import tokens_from_msg, tokens_to_msg
from engram.nodes.messages.sensing import color_from_msg, color_to_msg
from engram_interfaces.msg import Experience, ExperienceAck, WeightChunk
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg

GONE = "gone"
"""Reward source of an Experience that holds no step: 1..sequence of its stream are no longer on the robot."""
JSON_MAX = 1 << 16
"""Longest JSON text that is read [characters]."""


def transition_to_msg(transition: Transition) -> Experience:
    """Return one control step of experience as a message."""
    msg = Experience(header=header(transition.stamp_ns), robot_id=transition.robot_id, boot_id=transition.boot_id)
    msg.sequence, msg.episode, msg.step = transition.sequence, transition.episode, transition.step
    msg.instruction, msg.task = transition.instruction, transition.task
    msg.camera_names = list(transition.images)
    msg.images = [color_to_msg(image, transition.stamp_ns, name) for name, image in transition.images.items()]
    msg.state, msg.action = doubles(transition.state), doubles(transition.action)
    msg.executed_action = doubles(transition.executed_action)
    msg.reward, msg.reward_source = float(transition.reward), transition.reward_source
    msg.terminated, msg.truncated = bool(transition.terminated), bool(transition.truncated)
    msg.success, msg.author = bool(transition.success), transition.author
    msg.chunk_stamp = to_stamp(transition.chunk_ns)
    msg.policy_version, msg.memory_ids = transition.policy_version, list(transition.memory_ids)
    source = transition.source
    msg.policy, msg.lineage, msg.ablation = source.policy, source.lineage, source.ablation
    msg.covered_cameras = list(source.covered_cameras)
    if transition.context is not None:
        msg.context = tokens_to_msg(transition.context)
    return msg


def gone_to_msg(gone: Gone) -> Experience:
    """Return word of what a robot no longer has: an Experience whose reward source says so and that holds no step."""
    return Experience(robot_id=gone.robot_id, boot_id=gone.boot_id, sequence=gone.sequence, reward_source=GONE)


def experience_from_msg(msg: Experience) -> Transition | Gone:
    """Return the transition, or word of what the robot no longer has; raises InvalidInputError."""
    if msg.reward_source == GONE:
        return Gone(msg.robot_id, msg.boot_id, msg.sequence)
    return transition_from_msg(msg)


def transition_from_msg(msg: Experience) -> Transition:
    """Return the transition; raises InvalidInputError when an array does not fit or is not finite."""
    if len(msg.camera_names) != len(msg.images):
        raise InvalidInputError(f"Experience: {len(msg.images)} images for {len(msg.camera_names)} camera names")
    images = {
        name: color_from_msg(image, f"Experience image {name!r}")
        for name, image in zip(msg.camera_names, msg.images, strict=True)
    }
    return Transition(
        robot_id=msg.robot_id, boot_id=msg.boot_id, sequence=msg.sequence, episode=msg.episode, step=msg.step,
        stamp_ns=from_stamp(msg.header.stamp), task=msg.task, instruction=msg.instruction, images=images,
        state=np.array(msg.state, np.float32), action=np.array(msg.action, np.float32),
        executed_action=np.array(msg.executed_action, np.float32), reward=msg.reward,
        reward_source=msg.reward_source, terminated=msg.terminated, truncated=msg.truncated, success=msg.success,
        author=msg.author, policy_version=msg.policy_version, memory_ids=tuple(msg.memory_ids),
        source=ActionSource(msg.policy, msg.lineage, msg.ablation, tuple(msg.covered_cameras)),
        context=tokens_from_msg(msg.context) if msg.context.count else None,
        chunk_ns=from_stamp(msg.chunk_stamp),
    )  # fmt: skip


def ack_to_msg(robot_id: str, boot_id: str, sequence: int) -> ExperienceAck:
    """Return the learner's receipt: 1..``sequence`` are durable."""
    return ExperienceAck(robot_id=robot_id, boot_id=boot_id, sequence=int(sequence))


def manifest_to_msg(
    manifest: PolicyManifest, stamp_ns: int, chunk_size: int, signature: bytes = b""
) -> PolicyManifestMsg:
    """Return the announcement of a weight file that travels in slices of ``chunk_size`` bytes."""
    msg = PolicyManifestMsg(header=header(stamp_ns), version=manifest.version, parent=manifest.parent)
    msg.sha256, msg.size = manifest.sha256, int(manifest.size)
    msg.chunk_size, msg.stage = int(chunk_size), manifest.stage
    msg.metrics_json = json.dumps(dict(manifest.metrics), sort_keys=True)
    if said := manifest.config.get(announcements.KEY):
        msg.announcement, msg.robots = said["sequence"], said["robots"]
    lineage = manifest.lineage
    if lineage is not None:
        msg.lineage_name, msg.lineage_root = lineage.name, lineage.root
        msg.lineage_architecture, msg.lineage_normalization = lineage.architecture, lineage.normalization
    msg.signature = octets(signature)
    return msg


def manifest_from_msg(msg: PolicyManifestMsg) -> PolicyManifest:
    """Return the manifest; raises when the stage is unknown or ``metrics_json`` holds no object."""
    lineage = None  # without a root the sender gave none
    if msg.lineage_root:
        digests = (msg.lineage_root, msg.lineage_architecture, msg.lineage_normalization)
        lineage = Lineage(*digests, msg.lineage_name)
    metrics = _metrics(msg.metrics_json)
    manifest = PolicyManifest(msg.version, msg.parent, msg.sha256, msg.size, msg.stage, metrics, lineage=lineage)
    return announcements.announced(manifest, msg.robots, msg.announcement) if msg.announcement else manifest


def _metrics(text: str) -> dict:
    if len(text) > JSON_MAX:
        raise InvalidInputError(f"PolicyManifest.metrics_json: {len(text)} characters, at most {JSON_MAX} are read")
    try:
        value = json.loads(text or "{}")
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text: nothing could pass it on
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"PolicyManifest.metrics_json: not JSON in Unicode: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInputError(f"PolicyManifest.metrics_json: a {type(value).__name__}, expected an object")
    return value


def weight_chunks_to_msgs(version: str, weights: bytes, chunk_size: int) -> Iterator[WeightChunk]:
    """Yield the slices of a weight file in order; joined they are ``weights`` again."""
    for index, piece in enumerate(slices.split(weights, chunk_size)):
        yield WeightChunk(version=version, index=index, data=octets(piece))
