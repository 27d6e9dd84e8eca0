"""The scene in 3D: the robot, the objects, rooms and relations of the scene graph, and the object picked out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial

import numpy as np
import viser

from engram.core.robot import RobotConfig
from engram.core.types import JointState, SceneNode
from engram.viewer.markup import duration, shortened
from engram.viewer.robot_shapes import RobotShapes
from engram.viewer.values import Graph

TABLE_SIZE_M = (0.9, 1.2)
"""The simulated table for an arm of full size; a smaller arm has a smaller one."""
TABLE_CENTRE_M = (0.45, 0.0)
RELATION_COLORS = {"on": (34, 139, 230), "in": (112, 72, 232), "held_by": (230, 119, 0), "near": (173, 181, 189)}
SMALLEST_M = 0.005
LABEL_SHOWN = 100
"""Characters of a label that stand in the scene."""
USUAL_ID = re.compile(r"[\w.-]{1,64}/[\w.-]{1,64}", re.ASCII)
"""One without a "/" would be the frame that others are in: it would move them, and take them along when it goes."""
ABSENT_OPACITY = 0.12
HIGHLIGHT_COLOR = (255, 146, 43)
VIEW_FROM_M = np.array([0.55, -0.55, 0.45])
"""Where the camera goes to look at an object that a visitor picked, relative to the object."""
CUBE_EDGES = np.array([(a, b) for a in range(8) for b in range(8) if a < b and (a ^ b).bit_count() == 1])
CUBE_CORNERS = np.array([[(i >> k & 1) - 0.5 for k in range(3)] for i in range(8)])
Handles = list[viser.SceneNodeHandle]


def place_in_scene(node_id: str) -> str:
    """Return the id of a node as a name in viser's scene, where every "/" makes a frame of its own.

    A digest stands for an unusual id: 30,000 frames in each other would end the page.

    >>> place_in_scene("object/1"), place_in_scene("a/" * 30000)[:8]
    ('object/1', '0d764750')
    """
    if USUAL_ID.fullmatch(node_id):
        return node_id
    return hashlib.sha256(node_id.encode(errors="surrogatepass")).hexdigest()


def caption(node: SceneNode, now_ns: int) -> str:
    """Return what stands above an object: its label, and what is not as one sees it."""
    ago = f", last seen {duration(max(0, now_ns - node.last_seen_ns) / 1e9)} ago" if node.last_seen_ns else ""
    label, state = shortened(node.label, LABEL_SHOWN), shortened(node.state, LABEL_SHOWN)
    if state == "absent":
        return f"{label}: believed gone{ago}"
    return label if state == "visible" else f"{label}: {state}{ago}"


def opacity(node: SceneNode) -> float:
    """Return how solid an object is drawn: the fainter, the weaker the belief that it is there."""
    return ABSENT_OPACITY if node.state == "absent" else 0.25 + 0.65 * node.belief


def box_edges(size: np.ndarray) -> np.ndarray:
    """Return the 12 edges of a box of ``size`` (3,) m around the origin: (12, 2, 3) m."""
    return (CUBE_CORNERS * size)[CUBE_EDGES].astype(np.float32)


def relation_lines(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the relations between objects as lines: ends (n, 2, 3) m and colors (n, 2, 3) uint8.

    Those to rooms are in the list.
    """
    ends, colors = [], []
    for edge in graph.edges:
        source, target = graph.nodes.get(edge.source), graph.nodes.get(edge.target)
        if source is None or target is None or target.layer not in ("object", "objects", "agent"):
            continue
        ends.append([source.pose.position, target.pose.position])
        colors.append([RELATION_COLORS.get(edge.relation, RELATION_COLORS["near"])] * 2)
    return np.array(ends, np.float32), np.array(colors, np.uint8)


def looks(node: SceneNode, text: str) -> tuple[object, ...]:
    """Return what a node is drawn from, with the ``text`` above it: while that is the same, it need not be redrawn."""
    arrays = (node.pose.position, node.pose.quaternion, node.size, node.color)
    return (*(array.tobytes() for array in arrays), opacity(node), text)


class SceneView:
    """Draws in the scene of a viser server; ``on_pick`` is called with the id of an object that was clicked.

    Without a ``robot`` the floor is that of a home, and no table stands on it.
    """

    def __init__(self, server: viser.ViserServer, robot: RobotConfig | None, on_pick: Callable[[str], None]) -> None:
        self._scene, self._on_pick = server.scene, on_pick
        self._server = server
        self._robot: RobotShapes | None = None
        if robot is not None and robot.model:  # one that is never simulated has no shapes
            self._robot = RobotShapes(robot)
        self._links = [
            self._scene.add_mesh_simple(f"/robot/{s.name}", s.vertices, s.faces, color=s.color)
            for s in (self._robot.shapes() if self._robot is not None else ())
        ]
        self._drawn: dict[str, tuple[object, Handles]] = {}  # of the graph: how it looks, what it is
        self._highlight: viser.SceneNodeHandle | None = None
        self.picked = ""  # node id
        if robot is not None:
            self._add_table(robot)
        side, cell, away = (4.0, 0.25, 1.0) if robot is not None else (20.0, 1.0, 5.0)  # m, m, times
        self._scene.add_grid("/floor", width=side, height=side, cell_size=cell, position=(0.0, 0.0, -0.05))
        self._scene.configure_default_lights(cast_shadow=False)  # shadows are what software rendering is slow at
        server.initial_camera.position = (1.35 * away, -0.75 * away, 0.75 * away)
        server.initial_camera.look_at = (0.35, 0.0, 0.2)

    def _add_table(self, robot: RobotConfig) -> None:
        (depth, width), (x, y) = robot.table.scale * np.array(TABLE_SIZE_M), robot.table.place(np.array(TABLE_CENTRE_M))
        self._scene.add_box("/table", color=(206, 190, 168), dimensions=(depth, width, 0.04), position=(x, y, -0.021))

    def show_joints(self, joints: JointState) -> None:
        """Move the robot."""
        if self._robot is None:
            return
        positions, quaternions = self._robot.poses(joints)
        with self._server.atomic():
            for link, position, quaternion in zip(self._links, positions, quaternions, strict=True):
                link.position, link.wxyz = position, quaternion

    def show_graph(self, graph: Graph) -> None:
        """Draw the graph in place of what was drawn before; what looks the same stays."""
        wanted = self._wanted(graph.shown())
        with self._server.atomic():
            for name, (look, handles) in list(self._drawn.items()):
                if name not in wanted or wanted[name][0] != look:
                    self._drawn[name] = None, handles  # whatever it is to look like, should a removal fail
                    for handle in handles:
                        handle.remove()
                    del self._drawn[name]
            for name, (look, add) in wanted.items():
                if name not in self._drawn:
                    self._drawn[name] = look, add()
            self.pick(self.picked, graph)

    def _wanted(self, graph: Graph) -> dict[str, tuple[object, Callable[[], Handles]]]:
        """Return what is to be drawn: how it looks, and what draws it."""
        wanted: dict[str, tuple[object, Callable[[], Handles]]] = {}
        for node in graph.objects:
            text = caption(node, graph.stamp_ns)
            wanted[f"/memory/{node.id}"] = looks(node, text), partial(self._add_object, node, text)
        for node in graph.rooms:
            wanted[f"/rooms/{node.id}"] = looks(node, node.label), partial(self._add_room, node)
        for node in graph.of("agent"):
            if node.belief > 0:  # else its place is not known
                wanted[f"/agents/{node.id}"] = looks(node, node.label), partial(self._add_agent, node)
        ends, colors = relation_lines(graph)
        if len(ends):
            look = ends.tobytes(), colors.tobytes()
            wanted["/relations"] = look, partial(self._add_relations, ends, colors)
        return wanted

    def pick(self, node_id: str, graph: Graph) -> None:
        """Draw a frame around one object, or around none."""
        if self._highlight is not None:
            self._highlight.remove()
            self._highlight = None
        self.picked = node_id
        node = graph.nodes.get(node_id)
        if node is None:
            return
        edges = box_edges(np.maximum(node.size, 0.02) + 0.03)
        self._highlight = self._scene.add_line_segments(
            "/picked", edges, HIGHLIGHT_COLOR, thickness=4.0, thickness_units="screen",
            position=node.pose.position, wxyz=node.pose.quaternion,
        )  # fmt: skip

    def look_at(self, place: np.ndarray) -> None:
        """Turn the view of every visitor to ``place`` (3,) m."""
        for client in self._server.get_clients().values():
            with client.atomic():
                client.camera.position = place + VIEW_FROM_M
                client.camera.look_at = place

    def _add_object(self, node: SceneNode, text: str) -> Handles:
        size = tuple(float(max(s, SMALLEST_M)) for s in node.size)
        color = tuple(int(255 * c) for c in np.clip(node.color, 0, 1))
        box = self._scene.add_box(
            f"/memory/{place_in_scene(node.id)}", color=color, dimensions=size, opacity=opacity(node),  # type: ignore[arg-type]
            position=node.pose.position, wxyz=node.pose.quaternion,
        )  # fmt: skip
        box.on_click(partial(self._clicked, node.id))
        label = self._scene.add_label(
            f"/memory_labels/{place_in_scene(node.id)}", text, anchor="bottom-center",
            position=node.pose.position + np.array([0.0, 0.0, size[2] / 2 + 0.02]),
        )  # fmt: skip
        return [box, label]

    def _clicked(self, node_id: str, _: object) -> None:
        self._on_pick(node_id)

    def _add_room(self, node: SceneNode) -> Handles:
        size = np.maximum(node.size, SMALLEST_M)
        frame = self._scene.add_line_segments(
            f"/rooms/{place_in_scene(node.id)}", box_edges(size), (148, 158, 168),
            thickness=1.5, thickness_units="screen", position=node.pose.position, wxyz=node.pose.quaternion,
        )  # fmt: skip
        corner = node.pose.position + size * (-0.5, 0.5, 0.5)
        name = self._scene.add_label(
            f"/rooms_labels/{place_in_scene(node.id)}", shortened(node.label, LABEL_SHOWN),
            position=corner, font_screen_scale=0.8,
        )  # fmt: skip
        return [frame, name]

    def _add_agent(self, node: SceneNode) -> Handles:
        frame = self._scene.add_frame(
            f"/agents/{place_in_scene(node.id)}", axes_length=0.15, axes_radius=0.006,
            position=node.pose.position, wxyz=node.pose.quaternion,
        )  # fmt: skip
        label = self._scene.add_label(
            f"/agents_labels/{place_in_scene(node.id)}", shortened(node.label, LABEL_SHOWN),
            position=node.pose.position, font_screen_scale=0.8,
        )  # fmt: skip
        return [frame, label]

    def _add_relations(self, ends: np.ndarray, colors: np.ndarray) -> Handles:
        return [self._scene.add_line_segments("/relations", ends, colors, thickness=2.0, thickness_units="screen")]
