"""The robot that tools draw is the robot that moves: URDF and link poses against MuJoCo's own kinematics."""

from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.types import Pose
from engram.sim.world import MujocoWorld, WorldConfig


@pytest.fixture
def world():
    made = MujocoWorld(WorldConfig(profile="none"))
    yield made
    made.close()


def chain(pose: Pose, poses: dict[str, Pose]) -> tuple[np.ndarray, Rotation]:
    """Follow the parents of ``pose`` down to base_link."""
    position, turn = pose.position, Rotation.from_quat(pose.quaternion, scalar_first=True)
    while pose.frame != "base_link":
        pose = poses[pose.frame]
        parent = Rotation.from_quat(pose.quaternion, scalar_first=True)
        position, turn = pose.position + parent.apply(position), parent * turn
    return position, turn


def test_the_links_lead_from_base_link_to_where_mujoco_has_the_bodies(world):
    world.rest(0.1)
    poses = {**world.link_poses(moving=False), **world.link_poses(moving=True)}
    for name in ("link1", "link4", "link7", "base", "right_follower", "left_silicone_pad"):
        position, turn = chain(poses[name], poses)
        body = mujoco.mj_name2id(world.model, mujoco.mjtObj.mjOBJ_BODY, name)
        np.testing.assert_allclose(turn.as_matrix().ravel(), world.data.xmat[body], atol=1e-6)
        joint = world.model.body_jntadr[body]
        offset = world.model.jnt_pos[joint] if joint >= 0 else np.zeros(3)
        np.testing.assert_allclose(position, world.data.xpos[body] + turn.apply(offset), atol=1e-6)


def test_the_first_joint_of_the_panda_stands_333_mm_above_its_base(world):
    world.rest(0.1)
    link = world.link_poses(moving=True)["link1"]
    assert link.frame == "link0"
    np.testing.assert_allclose(link.position, (0.0, 0.0, 0.333), atol=1e-9)  # Franka's datasheet: d1
    assert "link1" not in world.link_poses(moving=False)


def test_the_urdf_has_every_joint_of_the_robot_with_its_limits_and_a_tree_of_links(world):
    robot = ElementTree.fromstring(world.robot_description().split("?>", 1)[1])
    joints = {j.get("name"): j for j in robot.findall("joint")}
    for name, low, high in zip(world.robot.arm_joints, world.robot.position_min, world.robot.position_max, strict=True):
        limit = joints[name].find("limit")
        assert (float(limit.get("lower")), float(limit.get("upper"))) == pytest.approx((low, high), abs=0.2)
    assert joints["left_follower_joint"].find("mimic").attrib == {
        "joint": "gripper", "multiplier": "-1", "offset": "0",
    }  # fmt: skip
    links = {link.get("name") for link in robot.findall("link")}
    children = [j.find("child").get("link") for j in joints.values()]
    assert sorted(children) == sorted(links - {"base_link"})  # one parent each: a tree
    assert {j.find("parent").get("link") for j in joints.values()} <= links


def test_the_urdf_at_the_joints_angles_gives_the_link_poses(world):
    """What robot_state_publisher would compute: origin of the joint, then a turn about its axis."""
    world.reset("reach", 3)
    robot = ElementTree.fromstring(world.robot_description().split("?>", 1)[1])
    angles = dict(zip(world.robot.joint_names, world.joint_state().positions, strict=True))
    poses = world.link_poses(moving=True)
    for name in world.robot.joint_names:
        joint = next(j for j in robot.findall("joint") if j.get("name") == name)
        origin = joint.find("origin")
        turn = Rotation.from_euler("xyz", np.array(origin.get("rpy").split(), float))
        turn *= Rotation.from_rotvec(angles[name] * np.array(joint.find("axis").get("xyz").split(), float))
        pose = poses[joint.find("child").get("link")]
        found = Rotation.from_quat(pose.quaternion, scalar_first=True)
        assert (found.inv() * turn).magnitude() < 1e-4
        np.testing.assert_allclose(pose.position, np.array(origin.get("xyz").split(), float), atol=1e-5)


def test_at_rest_time_goes_on_and_the_episode_does_not(world):
    first = world.rest(0.5)
    assert world.rest(0.5).stamp_ns - first.stamp_ns == 500_000_000
    np.testing.assert_array_equal(first.joints.positions[:7], world.robot.home)
    assert world.reset("reach", 1).stamp_ns > first.stamp_ns
    before = world.oracle_outcome()
    assert before.episode == 0  # the first one, although the empty table was shown before
    world.rest(0.5)
    assert world.oracle_outcome() == before
