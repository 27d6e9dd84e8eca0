"""The robot of a compiled scene for tools that draw it: URDF with primitive shapes, and where each link is.

A link is a body of the model, its frame at the joint that moves it, so that a joint's position is the URDF's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import unknown_name
from engram.core.geometry import make_pose
from engram.core.types import Pose

BASE_LINK = "base_link"
VISIBLE_GROUP = 2
"""Geoms of this group are drawn; the others only collide."""


class RobotDescription:
    """The links of the robot that has ``joint``, in ``model``.

    Args:
        model: any scene with the robot, whose base stands still.
        joint: a joint of the arm; the links are those of the whole kinematic tree that it belongs to.
    """

    def __init__(self, model: mujoco.MjModel, joint: str) -> None:
        self.model = model
        index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
        if index < 0:
            raise unknown_name("joint", joint, (model.joint(i).name for i in range(model.njnt)))
        root = int(model.body_rootid[model.jnt_bodyid[index]])
        self._bodies = [i for i in range(model.nbody) if model.body_rootid[i] == root]
        self._joint_of = {int(model.jnt_bodyid[i]): i for i in range(model.njnt)}
        self._moving = np.array([i for i in self._bodies if i in self._joint_of], int)
        self._fixed = np.array([i for i in self._bodies if i not in self._joint_of], int)
        self._names = {i: model.body(i).name for i in self._bodies} | {0: BASE_LINK}
        self._anchors = np.zeros((model.nbody, 3))  # each link's origin in its body's frame [m]
        for body, joint_index in self._joint_of.items():
            self._anchors[body] = model.jnt_pos[joint_index]

    def poses(self, data: mujoco.MjData, *, moving: bool) -> dict[str, Pose]:
        """Return the pose of each link in its parent link; ``data`` with its kinematics up to date.

        ``moving``: of the links that a joint moves; otherwise of those that are fixed to their parent.
        """
        bodies = self._moving if moving else self._fixed
        if not len(bodies):
            return {}
        parents = self.model.body_parentid[bodies]  # of the root: the world, which is base_link
        turns, parent_turns = _rotation(data.xquat[bodies]), _rotation(data.xquat[parents])
        origins = data.xpos[bodies] + turns.apply(self._anchors[bodies])
        parent_origins = data.xpos[parents] + parent_turns.apply(self._anchors[parents])
        back = parent_turns.inv()
        positions, rotations = back.apply(origins - parent_origins), back * turns
        return {
            self._names[body]: make_pose(position, rotation, self._names[parent])
            for body, parent, position, rotation in zip(bodies, parents, positions, rotations, strict=True)
        }

    def urdf(self, name: str) -> str:
        """Return the URDF of the robot called ``name``."""
        robot = ElementTree.Element("robot", name=name)
        ElementTree.SubElement(robot, "link", name=BASE_LINK)
        for body in self._bodies:
            self._add_link(robot, body)
        couplings = self._couplings()
        rest = mujoco.MjData(self.model)
        rest.qpos[:] = self.model.qpos0
        mujoco.mj_kinematics(self.model, rest)
        at_rest = self.poses(rest, moving=False) | self.poses(rest, moving=True)
        for body in self._bodies:
            self._add_joint(robot, body, at_rest[self._names[body]], couplings)
        ElementTree.indent(robot)
        return ElementTree.tostring(robot, encoding="unicode", xml_declaration=True)

    def _couplings(self) -> dict[int, tuple[str, float, float]]:
        """Return joint -> (the joint that it follows, multiplier, offset) of the model's joint equalities."""
        found = {}
        for i in range(self.model.neq):
            follows = int(self.model.eq_obj2id[i])
            if self.model.eq_type[i] == mujoco.mjtEq.mjEQ_JOINT and follows >= 0:
                offset, ratio = self.model.eq_data[i][:2]
                found[int(self.model.eq_obj1id[i])] = (self.model.joint(follows).name, float(ratio), float(offset))
        return found

    def _add_link(self, robot: ElementTree.Element, body: int) -> None:
        link = ElementTree.SubElement(robot, "link", name=self._names[body])
        for geom in range(self.model.ngeom):
            if self.model.geom_bodyid[geom] == body and self.model.geom_group[geom] == VISIBLE_GROUP:
                self._add_visuals(link, geom, self._anchors[body])

    def _add_visuals(self, link: ElementTree.Element, geom: int, anchor: np.ndarray) -> None:
        model = self.model
        turn = _rotation(model.geom_quat[geom])
        position = model.geom_pos[geom] - anchor
        for shape, values, offset in _shapes(model, geom):
            visual = ElementTree.SubElement(link, "visual")
            visual.append(_origin(position + turn.apply(offset), turn))
            ElementTree.SubElement(ElementTree.SubElement(visual, "geometry"), shape, values)
            material = ElementTree.SubElement(visual, "material", name=f"color{geom}")
            ElementTree.SubElement(material, "color", rgba=_numbers(model.geom_rgba[geom]))

    def _add_joint(
        self,
        robot: ElementTree.Element,
        body: int,
        pose: Pose,
        couplings: Mapping[int, tuple[str, float, float]],
    ) -> None:
        model, index = self.model, self._joint_of.get(body)
        link = self._names[body]
        kind = "fixed" if index is None else _JOINT_KINDS[mujoco.mjtJoint(model.jnt_type[index])]
        name = f"{link}_fixed" if index is None else model.joint(index).name
        joint = ElementTree.SubElement(robot, "joint", name=name, type=kind)
        ElementTree.SubElement(joint, "parent", link=pose.frame)
        ElementTree.SubElement(joint, "child", link=link)
        joint.append(_origin(pose.position, _rotation(pose.quaternion)))
        if index is None:
            return
        ElementTree.SubElement(joint, "axis", xyz=_numbers(model.jnt_axis[index]))
        low, high = model.jnt_range[index] if model.jnt_limited[index] else (-np.pi, np.pi)
        limits = {"lower": f"{low:.6g}", "upper": f"{high:.6g}", "effort": "0", "velocity": "0"}
        ElementTree.SubElement(joint, "limit", limits)
        if index in couplings:
            leader, ratio, offset = couplings[index]
            ElementTree.SubElement(joint, "mimic", joint=leader, multiplier=f"{ratio:.6g}", offset=f"{offset:.6g}")


_JOINT_KINDS = {mujoco.mjtJoint.mjJNT_HINGE: "revolute", mujoco.mjtJoint.mjJNT_SLIDE: "prismatic"}


def _shapes(model: mujoco.MjModel, geom: int) -> list[tuple[str, dict[str, str], np.ndarray]]:
    """Return URDF shapes for a geom: element, attributes, offset in the geom's frame [m]."""
    size, kind, at = model.geom_size[geom], model.geom_type[geom], np.zeros(3)
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return [("sphere", {"radius": f"{size[0]:.6g}"}, at)]
    if kind in (mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_CAPSULE):
        shapes = [("cylinder", {"radius": f"{size[0]:.6g}", "length": f"{2 * size[1]:.6g}"}, at)]
        if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:  # URDF has none: a cylinder with a ball at either end
            ball = {"radius": f"{size[0]:.6g}"}
            shapes += [("sphere", ball, np.array([0.0, 0.0, end])) for end in (-size[1], size[1])]
        return shapes
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return [("box", {"size": _numbers(2 * size)}, at)]
    box = model.geom_aabb[geom]  # of a mesh or an ellipsoid: its bounding box
    return [("box", {"size": _numbers(2 * box[3:])}, box[:3])]


def _rotation(quaternion: np.ndarray) -> Rotation:
    """Return the rotation of a quaternion w x y z, or of several, shape (n, 4)."""
    return Rotation.from_quat(quaternion, scalar_first=True)


def _origin(position: np.ndarray, turn: Rotation) -> ElementTree.Element:
    return ElementTree.Element("origin", xyz=_numbers(position), rpy=_numbers(turn.as_euler("xyz")))


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:.6g}" for value in np.asarray(values))
