"""A robot of your own: a three-axis gantry with two parallel fingers, its model written as MJCF.

Run these in the folder that holds `examples/`, or copy this file anywhere and name it `my_robot:GANTRY`:

    engram eval experts --robot examples.robot:GANTRY --tasks reach push_to_mark pick_place --episodes 20
    engram record --robot examples.robot:GANTRY --root data/gantry --tasks reach --episodes 100
    engram train --dataset data/gantry --out outputs/gantry --steps 4000
    engram eval outputs/gantry/policy --robot examples.robot:GANTRY --tasks reach --episodes 50
    engram up sim robot:=examples.robot:GANTRY policy:=outputs/gantry/policy task:=reach

In Gymnasium: gymnasium.make("engram/Reach-v0", robot="examples.robot:GANTRY"), after `import engram.sim`.
"""

import mujoco

from engram.core.camera import CameraConfig
from engram.core.robot import RobotConfig

FINGER = '<geom type="box" size=".006 .008 .03" pos="0 0 -.03" contype="1" conaffinity="2" friction="1"/>'
MJCF = f"""
<mujoco>
  <default><joint type="slide" damping="20"/></default>
  <worldbody><body name="bridge"><inertial pos="0 0 0" mass="2" diaginertia=".1 .1 .1"/>
    <joint name="x" axis="1 0 0"/>
    <body name="trolley"><inertial pos="0 0 0" mass="1" diaginertia=".1 .1 .1"/>
      <joint name="y" axis="0 1 0"/>
      <body name="hand"><joint name="z" axis="0 0 1"/>
        <geom type="box" size=".03 .05 .02" pos="0 0 .12" mass="1" contype="1" conaffinity="2"/>
        <site name="tool" euler="180 0 0"/>
        <body name="left" pos="0 .046 .05"><joint name="grip" axis="0 -1 0"/>{FINGER}</body>
        <body name="right" pos="0 -.046 .05"><joint name="right" axis="0 1 0"/>{FINGER}</body>
  </body></body></body></worldbody>
  <equality><joint joint1="right" joint2="grip"/></equality>
  <actuator>
    <position name="x" joint="x" kp="4000" kv="300"/><position name="y" joint="y" kp="4000" kv="300"/>
    <position name="z" joint="z" kp="4000" kv="300"/><position name="grip" joint="grip" kp="400" forcerange="-5 5"/>
  </actuator>
</mujoco>"""


def model(profile: str, robot: RobotConfig) -> mujoco.MjSpec:
    """Return the robot's model: joints, actuators, tool site and hand as named below; alike in all profiles."""
    return mujoco.MjSpec.from_string(MJCF)


GANTRY = RobotConfig(
    name="gantry", arm_joints=("x", "y", "z"), gripper_joint="grip", home=(0.5, 0.0, 0.3),
    position_min=(0.0, -0.6, 0.0), position_max=(1.0, 0.6, 0.6), velocity_max=(1.0,) * 3, acceleration_max=(10.0,) * 3,
    gripper_open=0.0, gripper_closed=0.04, gripper_velocity_max=0.4,
    workspace_min=(0.2, -0.45, 0.005), workspace_max=(0.8, 0.45, 0.6),
    cameras=(CameraConfig.looking_at("front", (1.0, 0.0, 0.8), (0.5, 0.0, 0.05)),),
    model=f"{__name__}:model", tool_site="tool", hand_link="hand", servo_lead_s=0.08,
)  # fmt: skip
