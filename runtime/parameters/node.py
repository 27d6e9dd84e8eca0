"""Parameters that every node has, and those of nodes that take part in control steps or read cameras."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters.field import param


@dataclass(frozen=True)
class NodeConfig:
    """Parameters that every node has, so that a `/**` section of a parameter file fits all."""

    autostart: bool = True
    """Configure and activate at start; false: wait for a lifecycle manager."""
    robot_id: str = ""
    """Name of the robot in experience, memory and diagnostics, and in its folders; empty: from the namespace, so that
    /cell/arm2 is cell_arm2, and robot0 without one."""
    diagnostics_period_s: float = param(1.0, 0.1, 60.0)
    """Time between two diagnostics [s], wall clock."""
    trace_file: str = ""
    """File for what sim, memory, perception, policy and safety node did with each stamp, and when, as JSON lines; it is
    written at exit. Empty: none."""
    executor: str = param("kept", choices=("kept", "rclpy"))
    """What calls the node's callbacks: kept, which keeps rclpy's wait set between waits, or rclpy's own
    SingleThreadedExecutor."""
    niceness: int = param(0, 0, 19)
    """Niceness of the process: a higher one yields the processor to the nodes that commands depend on."""


@dataclass(frozen=True)
class StepNodeConfig(NodeConfig):
    """Parameters of every node that takes part in each control step."""

    lockstep: bool = False
    """Every control step waits for its command, so that a slow machine gives the same result as a fast one."""


@dataclass(frozen=True)
class CameraNodeConfig(NodeConfig):
    """Parameters of every node that reads cameras."""

    image_transport: str = param("raw", choices=("raw", "compressed"))
    """How it takes images: raw, or compressed, as link_node publishes them for other machines."""
