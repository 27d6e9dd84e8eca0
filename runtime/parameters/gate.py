"""Parameters of the gate node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import BoundNodeConfig, param


@dataclass(frozen=True)
class GateNodeConfig(BoundNodeConfig):
    """Parameters of the gate node."""

    niceness: int = param(19, 0, 19)
    """How far it and its episodes yield to the other processes (Unix nice): nothing waits for a verdict."""
    robot: str = "panda_2f85"
    """Robot that drives. The gate simulates a panda_2f85 on the tabletop: of any other it judges nothing."""
    policy: str = "base"
    """Checkpoint that the learner began with."""
    folder: str = "~/.local/share/engram/{robot_id}/learner"
    """The learner's folder; "{robot_id}" is filled in."""
    promote: bool = True
    """Ask the learner to promote what the gate promotes; false: a person does (`engram promote`)."""
    tasks: tuple[str, ...] = ("",)
    """Tasks on which a candidate has to hold its ground; [""]: all that the checkpoint was trained on. Those that the
    learner was taught since are added. The learner takes no verdict that left one of both out."""
    on: str = "none"
    """The gap that the robot has to the simulated tabletop, where one is known: a name of engram.sim.gaps, or a file of
    engram identify, as of engram validate --on."""
    identify: bool = False
    """Find the robot's gap in the learner's experience before a candidate is tried, and again every 50 episodes, as
    engram identify does. What that does not tell (the limits) is as in `on`."""
    budget: int = param(200, 1, 100000)
    """Most pairs of episodes a task; what is not shown by then is not promoted. Tasks on which what drives succeeds
    about every second time need the most."""
    worst_case: int = param(0, 0, 100000)
    """Episodes a task that first search for the deviations of the robot at which a candidate is weakest, at least 80;
    0: none. What was found before counts in any case."""
    practise: bool = False
    """While nothing is judged, search for corrections of the policy's motions, first at what the robot was asked for
    lately, in a simulation that differs as the robot does (`on`, `identify`); the learner makes what is found part of
    the weights."""
    workers: int = param(1, 1, 256)
    """Processes that run episodes."""
    ray: str = ""
    """Address of a Ray cluster that runs a candidate's episodes in place of these processes, as of engram validate
    --ray; empty: none. Practice runs here in any case."""
