"""The page docs/reference/nodes.md: every node's topics, services and parameters, from the code that has them.

``python -m engram.app.reference`` writes it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator, Sequence
from typing import Any

from engram.nodes import qos
from engram.nodes.base import EngramNode
from engram.nodes.gate_node import GateNode
from engram.nodes.learner_node import LearnerNode
from engram.nodes.lifecycle_manager import LifecycleManager
from engram.nodes.link_node import LinkNode
from engram.nodes.memory_node import MemoryNode
from engram.nodes.perception_node import PerceptionNode
from engram.nodes.policy_node import PolicyNode
from engram.nodes.robot_node import RobotNode
from engram.nodes.safety_node import SafetyNode
from engram.nodes.sim_node import SimNode
from engram.nodes.viewer_node import ViewerNode
from engram.runtime.parameters import NodeConfig, descriptions
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig

NODES = (
    SimNode,
    RobotNode,
    PerceptionNode,
    MemoryNode,
    PolicyNode,
    SafetyNode,
    LearnerNode,
    GateNode,
    ViewerNode,
    LinkNode,
)
TOPICS: tuple[tuple[str, str, str, qos.QoSProfile], ...] = (
    ("/clock", "rosgraph_msgs/Clock", "sim -> all", qos.SENSOR),
    ("robot_description", "std_msgs/String (URDF)", "sim -> RViz, yours", qos.LATCHED),
    (
        "camera/<name>/color/image_raw",
        "sensor_msgs/Image (rgb8; bgr8 is read)",
        "sim, robot, drivers -> perception, policy, viewer, link",
        qos.SENSOR,
    ),
    (
        "camera/<name>/depth/image_raw",
        "sensor_msgs/Image (32FC1 m; 16UC1 mm is read)",
        "sim, drivers -> perception, link",
        qos.SENSOR,
    ),
    (
        "camera/<name>/color/image_raw/compressed",
        "sensor_msgs/CompressedImage (JPEG; PNG is read)",
        "link -> viewer, policy, perception with image_transport: compressed",
        qos.COMPRESSED,
    ),
    (
        "camera/<name>/depth/image_raw/compressedDepth",
        "sensor_msgs/CompressedImage (PNG of 16UC1 mm)",
        "link -> perception with image_transport: compressed",
        qos.COMPRESSED,
    ),
    ("camera/<name>/camera_info", "sensor_msgs/CameraInfo", "sim, robot, drivers -> perception, policy", qos.SENSOR),
    (
        "joint_states",
        "sensor_msgs/JointState",
        "sim, robot -> policy, safety, memory, viewer, teleoperation",
        qos.SENSOR,
    ),
    ("tf", "tf2_msgs/TFMessage", "sim, robot, drivers -> perception, memory, policy", qos.SENSOR),
    ("tf_static", "tf2_msgs/TFMessage", "sim, robot, drivers -> perception, memory, policy", qos.LATCHED),
    (
        "task/status",
        "engram_interfaces/TaskStatus",
        "sim, policy (on a robot) -> policy, safety, perception, memory, viewer, teleoperation; the newest",
        qos.LATCHED,
    ),
    (
        "task/step",
        "engram_interfaces/TaskStatus",
        "sim -> perception, policy, memory (lock-step); every control step, and idle between episodes",
        qos.every_step(qos.SENSOR, lockstep=True),
    ),
    ("scene/observation", "engram_interfaces/SceneObservation", "perception -> memory", qos.EVENTS),
    ("detections", "vision_msgs/Detection3DArray", "detectors of others -> memory", qos.DETECTIONS),
    ("memory/graph", "engram_interfaces/SceneGraphUpdate", "memory -> safety, viewer, teleoperation, yours", qos.GRAPH),
    ("memory/context", "engram_interfaces/MemoryContext", "memory -> policy", qos.COMMAND),
    (
        "verdict",
        "engram_interfaces/Verdict",
        "memory -> policy, viewer, yours; whether the instruction is carried out",
        qos.COMMAND,
    ),
    ("policy/action_chunk", "engram_interfaces/ActionChunk", "policy -> safety, memory", qos.CHUNK),
    ("intervention", "engram_interfaces/Intervention", "teleoperation, viewer -> safety", qos.EVENTS),
    (
        "safety/executed",
        "engram_interfaces/ActionChunk (one row; policy_version: whose)",
        "safety -> policy, viewer, teleoperation",
        qos.SENSOR,
    ),
    (
        "safety/stopped",
        "std_msgs/Bool",
        "safety -> sim, robot, policy, viewer, teleoperation, operator; a stop is latched",
        qos.LATCHED,
    ),
    ("command", "trajectory_msgs/JointTrajectory", "safety -> sim, robot", qos.COMMAND),
    ("experience", "engram_interfaces/Experience", "policy -> learner", qos.EXPERIENCE),
    ("experience/ack", "engram_interfaces/ExperienceAck", "learner -> policy", qos.EXPERIENCE),
    ("policy/candidate", "engram_interfaces/PolicyManifest", "learner -> gate, viewer", qos.LATCHED),
    ("policy/manifest", "engram_interfaces/PolicyManifest", "learner -> policy, gate, viewer", qos.MANIFEST),
    ("policy/gate", "engram_interfaces/GateVerdict", "gate -> viewer, yours; verdicts and progress", qos.LATCHED),
    ("policy/weights", "engram_interfaces/WeightChunk", "learner -> policy", qos.WEIGHTS),
    ("hardware/joint_states", "sensor_msgs/JointState", "ros2_control -> robot", qos.SENSOR),
    (
        "joint_trajectory_controller/joint_trajectory",
        "trajectory_msgs/JointTrajectory",
        "robot -> ros2_control",
        qos.COMMAND,
    ),
    (
        "/diagnostics",
        "diagnostic_msgs/DiagnosticArray",
        "every node -> viewer, link, far_link, yours; once a second",
        qos.DIAGNOSTICS,
    ),
)
SERVICES = (
    ("sim/reset", "engram_interfaces/srv/ResetSim", "sim", "begin an episode"),
    ("execute_task", "engram_interfaces/action/ExecuteTask", "policy", "carry out an instruction (action)"),
    (
        "execute_task/cancel",
        "std_srvs/srv/Trigger",
        "policy",
        "end the goal, whoever gave it: the arm stays where it is",
    ),
    ("execute_task/succeeded", "std_srvs/srv/Trigger", "policy", "a person says that the robot's goal is reached"),
    ("execute_task/failed", "std_srvs/srv/Trigger", "policy", "a person says that the robot's goal is missed"),
    ("safety/stop", "std_srvs/srv/Trigger", "safety", "hold until safety/reset"),
    ("safety/reset", "std_srvs/srv/Trigger", "safety", "release a stop"),
    ("memory/query", "engram_interfaces/srv/MemoryQuery", "memory", "ask in words, near a place, as of a time"),
    ("memory/merge", "engram_interfaces/srv/MemoryMerge", "memory", "merge another robot's memory, or remove it again"),
    ("memory/conflicts", "engram_interfaces/srv/MemoryConflicts", "memory", "list pairs that may be one object or two"),
    (
        "memory/resolve",
        "engram_interfaces/srv/MemoryResolve",
        "memory",
        "decide whether two objects are one, or undo a decision",
    ),
    ("memory/get_graph", "engram_interfaces/srv/GetGraph", "memory", "the whole scene graph, now or as of a time"),
    ("memory/publish_graph", "std_srvs/srv/Trigger", "memory", "publish the whole scene graph on memory/graph again"),
    ("policy/promote", "engram_interfaces/srv/PromotePolicy", "learner", "approve a version for good"),
    ("policy/rollback", "engram_interfaces/srv/RollbackPolicy", "learner", "return to an earlier version"),
    ("lifecycle_manager/startup", "std_srvs/srv/Trigger", "lifecycle_manager", "bring every node up"),
    ("lifecycle_manager/pause", "std_srvs/srv/Trigger", "lifecycle_manager", "deactivate every node"),
    ("lifecycle_manager/shutdown", "std_srvs/srv/Trigger", "lifecycle_manager", "clean every node up"),
    ("lifecycle_manager/is_active", "std_srvs/srv/Trigger", "lifecycle_manager", "whether every node is active"),
    ("<node>/get_state", "lifecycle_msgs/srv/GetState", "every lifecycle node", "its lifecycle state"),
    ("<node>/change_state", "lifecycle_msgs/srv/ChangeState", "every lifecycle node", "the next transition"),
)

HEAD = ("parameter", "default", "valid", "what it does")


def parameters(cls: type, prefix: str = "", skip: type | None = None) -> Iterator[tuple[str, Any, str, str]]:
    """Yield name, default, what is valid and description of each parameter that ``cls`` declares."""
    inherited = {f.name for f in dataclasses.fields(skip)} if skip is not None else set()
    for field in dataclasses.fields(cls):
        name = f"{prefix}.{field.name}" if prefix else field.name
        if field.name in inherited:
            continue
        if isinstance(field.default_factory, type) and dataclasses.is_dataclass(field.default_factory):
            yield from parameters(field.default_factory, name)
            continue
        low, high = field.metadata.get("range", (None, None))
        valid = f"{low} .. {high}" if low is not None else ", ".join(field.metadata.get("choices", ()))
        yield name, field.default, valid, descriptions(cls).get(field.name, "")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + [
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows
    ]


def _parameter_table(cls: type, prefix: str = "", skip: type | None = None) -> list[tuple[str, ...]]:
    rows = parameters(cls, prefix, skip)
    return [(f"`{name}`", f"`{json.dumps(default)}`", valid, text) for name, default, valid, text in rows]


def _node(cls: type, rows: list[tuple[str, ...]]) -> list[str]:
    module = inspect.getmodule(cls)
    assert module is not None
    name, about = module.__name__.rsplit(".", 1)[-1], inspect.getdoc(module) or ""
    return [f"## {name}", "", about, "", *_table(HEAD, rows), ""]


def _lifecycle_node(cls: type[EngramNode]) -> list[str]:
    rows = _parameter_table(cls.config_class, skip=NodeConfig)
    for prefix, section in cls.sections.items():
        rows += _parameter_table(section, prefix)
    return _node(cls, rows)


def nodes_page() -> str:
    """Return the whole page."""
    topics = [(f"`{name}`", kind, way, qos.describe(profile)) for name, kind, way, profile in TOPICS]
    services = [(f"`{name}`", kind, node, text) for name, kind, node, text in SERVICES]
    lines = [
        "# Nodes: topics, services, parameters",
        "",
        "Written by `python -m engram.app.reference`; a test keeps it in step with the code. Names are relative to",
        "the robot's namespace, but `/clock` and `/diagnostics`. Every node but the lifecycle manager is a lifecycle",
        "node.",
        "",
        "Images are subscribed to best effort in free running and reliably in lock-step. In lock-step the queues of",
        f"what each control step brings are {qos.CHUNK_STEPS} deep, because the simulation may be ahead of a slow",
        "reader by one action chunk.",
        "",
        "Parameters are read at start. Two can be set while the node runs: `policy` and `ablation` of `policy_node`.",
        "The others are read-only then. An unknown parameter, or a value out of range, is an error that names the",
        "valid ones. `ros2 param describe` shows the same text.",
        "",
        "## Topics",
        "",
        *_table(("topic", "type", "from -> to", "QoS of the publisher"), topics),
        "",
        "## Services and actions",
        "",
        *_table(("name", "type", "node", "what it does"), services),
        "",
        "## Every node but the lifecycle manager",
        "",
        *_table(HEAD, _parameter_table(NodeConfig)),
        "",
    ]
    for cls in NODES:
        lines += _lifecycle_node(cls)
    lines += _node(LifecycleManager, _parameter_table(LifecycleManagerConfig))
    return "\n".join(lines).rstrip() + "\n"
