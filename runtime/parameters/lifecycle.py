"""Parameters of the lifecycle manager."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters.field import param


@dataclass(frozen=True)
class LifecycleManagerConfig:
    """Parameters of the lifecycle manager."""

    node_names: tuple[str, ...] = ("",)
    """Lifecycle nodes to manage, in the order in which they are activated; relative names."""
    optional_names: tuple[str, ...] = ("",)
    """Lifecycle nodes that may be missing; one that appears is managed like the others, after them."""
    autostart: bool = True
    """Bring the nodes up at start; false: wait for ~/startup."""
    poll_period_s: float = param(0.5, 0.05, 60.0)
    """How often each node is asked for its state [s]."""
    silent_after_s: float = param(10.0, 0.5, 3600.0)
    """A node that did not answer for this long, and is in no transition, is reported as silent [s]."""
    motion_node: str = "policy_node"
    """Node that moves the robot: it is deactivated while another one hangs, so that the robot holds, and activated
    again when all before it are active. While a node that died is started again, the robot goes on; empty: none."""
    kill_after_s: float = param(15.0, 0.0, 3600.0)
    """A node that did not answer for this long, and is in no transition, hangs: its process is killed, if it is one of
    this machine, so that what started it starts it again; 0: never [s]."""
    slow_after_s: float = param(120.0, 1.0, 3600.0)
    """A transition that takes longer is reported as slow; the manager goes on waiting for it [s]."""
    stuck_after_s: float = param(600.0, 0.0, 36000.0)
    """A node in a transition that did not answer for this long hangs, too; 0: never [s]."""
    max_attempts: int = param(3, 1, 100)
    """How often a transition that fails is tried before the others go on without the node; then it is tried again every
    30 s. A restarted node starts anew."""
    retry_s: float = param(2.0, 0.0, 600.0)
    """Pause before a failed transition is tried again [s]."""
