"""The web page: scene in 3D, objects with labels, camera images, instruction box, node states, stop. No ROS in here.

viser serves it; the page is told what to show and tells what a visitor asked for through :class:`PageActions`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import viser

from engram.core.ports import PortInUseError, port_owner
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import JointState, SceneNode
from engram.memory.graph.embodiments import described
from engram.viewer.robot_shapes import RobotShapes

TITLE = "Engram"
LEVELS = ("ok", "warn", "error", "stale")
LEVEL_COLORS = {"ok": "#2f9e44", "warn": "#e8890c", "error": "#e03131", "stale": "#868e96"}
TABLE_SIZE_M = (0.9, 1.2)
TABLE_CENTRE_M = (0.45, 0.0)


@dataclass(frozen=True)
class PageActions:
    """What a visitor can ask for. Called from viser's threads."""

    instruct: Callable[[str], None]
    ask: Callable[[str], None]
    stop: Callable[[], None]
    release: Callable[[], None]


@dataclass(frozen=True)
class NodeState:
    """One line of the node table."""

    name: str
    level: str  # of LEVELS
    message: str


@dataclass(frozen=True)
class PolicyState:
    """What drives, and what it remembers of its episode."""

    name: str = ""
    version: str = ""
    remembered: str = ""


@dataclass(frozen=True)
class Outcome:
    """An episode that ended."""

    episode: int
    instruction: str
    state: str
    steps: int
    policy: str  # what drove


class ViewerPage:
    """One page, the same for every visitor."""

    def __init__(
        self,
        port: int,
        actions: PageActions,
        cameras: Sequence[str],
        host: str = "127.0.0.1",
        robot: RobotConfig = PANDA_2F85,
    ) -> None:
        self.server = viser.ViserServer(host=host, port=port, label=TITLE, verbose=False)
        if self.server.get_port() != port:  # viser would quietly take the next one
            self.server.stop()
            raise PortInUseError(f"port {port} is in use by {port_owner(port) or 'another process'}; choose another")
        self.server.gui.set_panel_label(TITLE)
        self.server.gui.configure_theme(control_width="medium", show_logo=False, show_share_button=False)
        self._actions = actions
        self._robot = RobotShapes(robot)
        self._links = self._add_robot()
        self._objects: dict[str, tuple[viser.BoxHandle, viser.LabelHandle]] = {}
        self._marks: list[viser.FrameHandle | viser.LabelHandle] = []  # of robots in the memory
        self._add_table()
        self._add_controls()
        with self.server.gui.add_folder("Policy"):
            self._policy = self.server.gui.add_html(policy_table(PolicyState(), ()))
        with self.server.gui.add_folder("Nodes"):
            self._nodes = self.server.gui.add_html(_node_table(()))
        with self.server.gui.add_folder("Memory"):
            self._add_question()
            self._memory = self.server.gui.add_html(_memory_table(()))
            self._agents = self.server.gui.add_html(agent_table((), {}))
        blank = np.full((128, 128, 3), 40, np.uint8)
        with self.server.gui.add_folder("Cameras"):
            self._cameras = {name: self.server.gui.add_image(blank, label=name, format="jpeg") for name in cameras}
        self.server.scene.configure_default_lights(cast_shadow=False)  # shadows are what software rendering is slow at
        self.server.initial_camera.position = (1.35, -0.75, 0.75)
        self.server.initial_camera.look_at = (0.35, 0.0, 0.2)

    @property
    def visitors(self) -> int:
        """How many browsers look at the page now."""
        return len(self.server.get_clients())

    def _add_robot(self) -> list[viser.MeshHandle]:
        return [
            self.server.scene.add_mesh_simple(f"/robot/{s.name}", s.vertices, s.faces, color=s.color)
            for s in self._robot.shapes()
        ]

    def _add_table(self) -> None:
        (depth, width), (x, y) = TABLE_SIZE_M, TABLE_CENTRE_M
        self.server.scene.add_box(
            "/table", color=(196, 176, 150), dimensions=(depth, width, 0.04), position=(x, y, -0.021)
        )
        self.server.scene.add_grid("/floor", width=4.0, height=4.0, cell_size=0.25, position=(0.0, 0.0, -0.05))

    def _add_controls(self) -> None:
        gui = self.server.gui
        self._status = gui.add_html(_paragraph("waiting for the robot"))
        self._instruction = gui.add_text("Instruction", "", hint="What the robot shall do, in words.")
        send = gui.add_button("Do it", color="blue", hint="Begin a task with these words.")
        stop = gui.add_button("STOP", color="red", hint="Hold at once, until released (safety/stop).")
        release = gui.add_button("Release stop", color="gray", hint="Let the robot move again (safety/reset).")
        self._answer = gui.add_html(_paragraph(""))
        send.on_click(lambda _: self._send())
        stop.on_click(lambda _: self._actions.stop())
        release.on_click(lambda _: self._actions.release())

    def _add_question(self) -> None:
        gui = self.server.gui
        question = gui.add_text("Question", "", hint="What the memory shall tell: where is the red cup")
        ask = gui.add_button("Ask", hint="Ask the memory (memory/query).")
        self._told = gui.add_html(_paragraph(""))
        ask.on_click(lambda _: self._actions.ask(question.value.strip()))

    def _send(self) -> None:
        words = self._instruction.value.strip()
        if words:
            self._actions.instruct(words)
        else:
            self.answer("Write what the robot shall do first.")

    # -- what is shown ---------------------------------------------------------------------------------------------

    def show_joints(self, joints: JointState) -> None:
        """Move the robot."""
        positions, quaternions = self._robot.poses(joints)
        with self.server.atomic():
            for link, position, quaternion in zip(self._links, positions, quaternions, strict=True):
                link.position, link.wxyz = position, quaternion

    def show_objects(self, nodes: Mapping[str, SceneNode]) -> None:
        """Show what the memory holds: everything in the table, in 3D what is not known to be gone.

        The fainter a box, the weaker the belief that it is still there.
        """
        there = {name: node for name, node in nodes.items() if node.state != "absent"}
        for gone in self._objects.keys() - there.keys():
            for handle in self._objects.pop(gone):
                handle.remove()
        for name, node in there.items():
            for handle in self._objects.pop(name, ()):
                handle.remove()
            self._objects[name] = self._add_object(name, node)
        known = sorted(nodes.values(), key=lambda n: (n.state == "absent", n.label, n.id))  # what is gone comes last
        self._memory.content = _memory_table(known)

    def show_agents(self, agents: Sequence[SceneNode], held: Mapping[str, str]) -> None:
        """Show the robots that the memory knows: where each stands, what it is and holds (node id -> label)."""
        for handle in self._marks:
            handle.remove()
        self._marks = [
            handle
            for node in agents
            if node.belief > 0
            for handle in (
                self.server.scene.add_frame(
                    f"/agents/{node.id}", axes_length=0.15, axes_radius=0.006,
                    position=node.pose.position, wxyz=node.pose.quaternion,
                ),
                self.server.scene.add_label(f"/agents/{node.id}/label", node.label),
            )
        ]  # fmt: skip
        self._agents.content = agent_table(agents, held)

    def _add_object(self, name: str, node: SceneNode) -> tuple[viser.BoxHandle, viser.LabelHandle]:
        scene, pose = self.server.scene, node.pose
        size = tuple(float(max(s, 0.005)) for s in node.size)
        color = tuple(int(255 * c) for c in np.clip(node.color, 0, 1))
        box = scene.add_box(
            f"/memory/{name}",
            color=color,  # type: ignore[arg-type]
            dimensions=size,  # type: ignore[arg-type]
            opacity=0.25 + 0.65 * node.belief,
            position=pose.position,
            wxyz=pose.quaternion,
        )
        above = pose.position + np.array([0.0, 0.0, size[2] / 2 + 0.02])
        text = node.label if node.state == "visible" else f"{node.label} ({node.state})"
        return box, scene.add_label(f"/memory/{name}/label_{name}", text, position=above - pose.position)

    def show_camera(self, name: str, color: np.ndarray) -> None:
        """Show a camera image (H, W, 3) uint8."""
        self._cameras[name].image = color

    def show_nodes(self, states: Sequence[NodeState]) -> None:
        """Show the condition of every node."""
        self._nodes.content = _node_table(states)

    def show_policy(self, policy: PolicyState, outcomes: Sequence[Outcome]) -> None:
        """Show what drives, what it remembers, and how the last episodes ended, newest first."""
        self._policy.content = policy_table(policy, outcomes)

    def show_status(self, text: str) -> None:
        """Say what the robot is doing."""
        self._status.content = _paragraph(text)

    def tell(self, *words: str) -> None:
        """Show what the memory answered, a paragraph each."""
        self._told.content = "".join(_paragraph(one) for one in words if one)

    def answer(self, text: str) -> None:
        """Answer the visitor's last wish."""
        self._answer.content = _paragraph(text)

    def close(self) -> None:
        """Stop serving."""
        self.server.stop()


def _paragraph(text: str) -> str:
    return f'<div style="padding:0.3em 1em;font-size:0.85em;min-height:1.4em">{html.escape(text)}</div>'


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<tr>{''.join(f'<td style=padding-right:0.6em>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table style="margin:0.3em 1em;font-size:0.8em;line-height:1.5">{cells}</table>'


def _node_table(states: Sequence[NodeState]) -> str:
    if not states:
        return _paragraph("no diagnostics have arrived")
    return _table(
        [
            (
                f'<span style="color:{LEVEL_COLORS[s.level]}">&#9679; {html.escape(s.level)}</span>',
                f"<b>{html.escape(s.name)}</b>",
                html.escape(s.message),
            )
            for s in states
        ]
    )


def policy_table(policy: PolicyState, outcomes: Sequence[Outcome]) -> str:
    """Return the policy's part of the page as HTML."""
    if not policy.name:
        return _paragraph("the policy node has not been heard")
    rows = [("drives", policy.name), ("weights", policy.version), ("remembers of its episode", policy.remembered)]
    ended = [(f"episode {o.episode}", f"{o.state}, {o.steps} steps", f'"{o.instruction}"', o.policy) for o in outcomes]
    return _table([(html.escape(a), f"<b>{html.escape(b)}</b>") for a, b in rows]) + (
        _table([[html.escape(cell) for cell in row] for row in ended]) if ended else ""
    )


def agent_table(agents: Sequence[SceneNode], held: Mapping[str, str]) -> str:
    """Return the robots in the memory as HTML."""
    rows = []
    for node in sorted(agents, key=lambda one: one.label):
        x, y, _ = node.pose.position
        place = f"{x:.2f} {y:.2f} m" if node.belief > 0 else "place not known"
        holds = f"holds the {held[node.id]}" if node.id in held else "holds nothing known"
        cells = (node.label, place, holds, described(node.embodiment))
        rows.append([f"<b>{html.escape(cells[0])}</b>", *map(html.escape, cells[1:])])
    return _table(rows) if rows else ""


def _memory_table(nodes: Sequence[SceneNode]) -> str:
    if not nodes:
        return _paragraph("nothing is remembered yet")
    return _table(
        [
            (
                f"<b>{html.escape(n.label)}</b>",
                html.escape(n.state),
                f"{n.pose.position[0]:.2f} {n.pose.position[1]:.2f} {n.pose.position[2]:.2f} m",
                f"belief {n.belief:.2f}",
            )
            for n in nodes
        ]
    )
