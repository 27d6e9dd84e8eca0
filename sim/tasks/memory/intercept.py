"""Wait on the right lane before the cube arrives: InterceptGrab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.props import Prop
from engram.sim.scene import BELT_TOP_M, BELT_TRAVEL_M, CUBE_HALF_M, SceneConfig
from engram.sim.tasks.memory.base import MemoryTask, row
from engram.sim.tasks.placement import upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

BEGIN_X_M, TUNNEL_X_M, LANE_PITCH_M = 0.76, 0.58, 0.17
CATCH_X_M = 0.46
"""Where a hand can wait for the cube: beyond the tunnel, before the end of the belt [m]."""
READY_STEPS = 20
"""How long the cube rests in the tunnel once the arm may move [control steps]."""
LIFTED_M = 0.08


class InterceptGrab(MemoryTask):
    """A cube rides into a tunnel on one of several lanes; it comes out fast, and only a hand that waits can grab it."""

    name: ClassVar[str] = "intercept_grab"
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 50
    show_steps: ClassVar[int] = 16
    instructions: ClassVar[tuple[str, ...]] = (
        "grab the cube when it comes out of the tunnel",
        "catch the moving cube behind the tunnel",
        "intercept the cube on its lane and lift it",
        "wait where the cube will come out and pick it up",
        "take the cube off the belt as it leaves the tunnel",
        "pick up the sliding cube before it reaches the end",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "be at the exit in time and lift the cube from the belt",
        "snatch the cube as soon as it leaves the tunnel",
    )

    def build_scene(self) -> SceneConfig:
        return SceneConfig(cubes=("parcel",), belt=True, props=(Prop("tunnel", "tunnel"),))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        self.lanes = row(self.k, LANE_PITCH_M) + rng.uniform(-0.01, 0.01)
        self.speed = rng.uniform(0.25, 0.30)  # m/s
        lane = self.lanes[self.oracle_cue]
        world.set_pose("tunnel", upright(np.array([TUNNEL_X_M, 0.0]), 0.0))
        world.set_pose("belt", upright(np.array([BEGIN_X_M, lane]), 0.0))
        world.set_pose("parcel", upright(np.array([BEGIN_X_M, lane]), BELT_TOP_M + CUBE_HALF_M))
        world.set_color("parcel", self.color("orange"))

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        belt = world.data.actuator("belt")
        belt.ctrl[0] = (BEGIN_X_M - TUNNEL_X_M) / (self.show_steps * world.config.control_dt_s)
        yield from self.park(self.show_steps)
        belt.ctrl[0] = 0.0
        yield from self.park(self.config.delay)
        self.clock = 0
        yield from self.choose(world)

    def judge(self, world: MujocoWorld) -> None:
        self.clock += 1
        if self.clock == READY_STEPS:
            world.data.actuator("belt").ctrl[0] = self.speed
        held = world.oracle_contact("parcel", world.robot.hand_link)
        if held and world.oracle_pose("parcel").position[2] >= LIFTED_M:
            self.decide(True)
        elif not held and world.oracle_joint("belt") > BELT_TRAVEL_M - 0.01:
            self.decide(False)
