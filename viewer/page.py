"""The web page: the scene in 3D between the cameras and the tabs Drive, Memory, Policy, Learning, Gate and Nodes.

viser serves it. The page is told what to show and tells what a visitor asked for through :class:`PageActions`; it
knows no ROS. Each tab has a file of its own. Where only the memory runs, without a robot that Engram drives, the page
has the tabs Memory and Nodes alone: a stop that stops nothing must not be there.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import numpy as np
import viser

from engram.core.errors import InvalidInputError
from engram.core.ports import PortInUseError, port_owner
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import JointState
from engram.runtime.teleop import Seen, Wish
from engram.viewer.banner import Banner
from engram.viewer.branding import TITLE, brand
from engram.viewer.cameras_panel import CamerasPanel
from engram.viewer.drive_controls import DriveTab, SafetyControls
from engram.viewer.encodable import guard_messages
from engram.viewer.learning_tabs import LearningTabs
from engram.viewer.memory_tab import MemoryTab
from engram.viewer.nodes_tab import NodesTab
from engram.viewer.policy_tab import PolicyTab
from engram.viewer.scene_view import SceneView
from engram.viewer.token_gate import TokenGate, hidden_loopback, is_loopback
from engram.viewer.values import Answer, Candidate, Graph, Judged, NodeState, Outcome, PageActions, PolicyState


class ViewerPage:
    """One page, the same for every visitor. Beyond this machine it asks for a token.

    Args:
        robot: is drawn, driven and stopped; None: there is none. What is said of one is then not shown.

    Attributes:
        link: what to open in a browser.

    Raises:
        PortInUseError: another process listens on ``port``.
        InvalidInputError: ``host`` is no address of this machine.
    """

    def __init__(
        self, port: int, actions: PageActions, host: str = "127.0.0.1", robot: RobotConfig | None = PANDA_2F85
    ) -> None:
        if (owner := port_owner(port)) and is_loopback(host):
            raise PortInUseError(f"port {port} is in use by {owner}; choose another")
        guard_messages()
        # viser asks nobody for an origin: a script that tries all ports of this machine must not find it
        self.server = viser.ViserServer(host=hidden_loopback(), port=0, label=TITLE, verbose=False)
        # what viser would do for every visitor: a link over a machine of others, past the gate
        self.server.request_share_url = lambda *_, **__: None  # type: ignore[method-assign]
        try:
            self._gate = TokenGate(host, port, (self.server.get_host(), self.server.get_port()))
        except InvalidInputError:
            self.server.stop()
            raise
        self.link = self._gate.link
        brand(self.server)
        self._actions = actions
        self.graph, self._drawing = Graph(), threading.RLock()  # visitors pick in viser's threads
        self._banner = Banner(self.server)
        self._safety: SafetyControls | None = None
        self._drive: DriveTab | None = None
        self._policy: PolicyTab | None = None
        self._learning: LearningTabs | None = None
        if robot is not None:
            self._safety = safety = SafetyControls(self.server, actions)
        tabs = self.server.gui.add_tab_group()
        if robot is not None:
            with tabs.add_tab("Drive"):
                self._drive = DriveTab(self.server, actions, lambda: safety.reason)
        with tabs.add_tab("Memory"):
            self._memory = MemoryTab(self.server, actions, self._show_answer, self._travel)
        if robot is not None:
            with tabs.add_tab("Policy"):
                self._policy = PolicyTab(self.server, actions)
            self._learning = LearningTabs(self.server, tabs)
        with tabs.add_tab("Nodes"):
            self._nodes = NodesTab(self.server)
        self._scene = SceneView(self.server, robot, self._pick)
        self._cameras = CamerasPanel(self.server)

    @property
    def visitors(self) -> int:
        """How many browsers look at the page now."""
        return len(self.server.get_clients())

    def by_hand(self, seen: Seen | None) -> Wish:
        """Return what the visitors want who drive the robot themselves; nothing while nobody knows where it is."""
        if self._drive is None:
            return Wish(False)
        if seen is None:
            self._drive.by_hand.drop()
            return Wish(False)
        return self._drive.by_hand.wish(seen)

    # -- what is shown ---------------------------------------------------------------------------------------------

    def show_joints(self, joints: JointState) -> None:
        """Move the robot."""
        self._scene.show_joints(joints)

    def show_camera(self, name: str, color: np.ndarray) -> None:
        """Show a camera image (H, W, 3) uint8; the first of a camera makes its place."""
        self._cameras.show(name, color)

    def keep_cameras(self, names: Collection[str]) -> None:
        """Take away the images of all cameras but ``names``."""
        self._cameras.keep(names)

    def show_graph(self, graph: Graph) -> None:
        """Show the memory's graph in 3D and as a list, now or at the time that a visitor asked for."""
        with self._drawing:
            self.graph = graph
            self._scene.show_graph(graph)
            self._memory.show_graph(graph, self._scene.picked)
        self._banner.show_past(self._memory.time.words() if graph.past else "")

    def show_span(self, oldest_ns: int, now_ns: int) -> None:
        """Say how far the memory goes back, for the slider."""
        self._memory.time.know(oldest_ns, now_ns)

    def show_goal(self, goal: str) -> None:
        """Show what the robot is doing, as HTML of :class:`engram.viewer.running_goal.RunningGoal`."""
        if self._safety is not None:
            self._safety.show_goal(goal)

    def show_stopped(self, reason: str) -> None:
        """Say that the robot is stopped until it is released, and why; empty: it is not stopped."""
        if self._safety is not None:
            self._safety.show_stopped(reason)
            self._banner.show_stopped(reason)

    def show_nodes(self, states: Sequence[NodeState]) -> None:
        """Show the condition of every node, and all that one of them says."""
        self._nodes.show(states)

    def show_policy(self, policy: PolicyState, outcomes: Sequence[Outcome]) -> None:
        """Show what drives, what else could, and how the last episodes ended, newest first."""
        if self._policy is not None:
            self._policy.show(policy, outcomes)

    def show_learning(
        self,
        learner: NodeState | None,
        gate: NodeState | None,
        candidates: Sequence[Candidate],
        judged: Sequence[Judged] = (),
    ) -> None:
        """Show what learner and gate do (None: nothing was heard), announced weights, and what the gate found.

        The last two are newest first.
        """
        if self._learning is not None:
            self._learning.show(learner, gate, candidates, judged)

    def show_examples(self, instructions: Sequence[str]) -> None:
        """Offer the instructions that the running tasks understand."""
        if self._drive is not None:
            self._drive.show_examples(instructions)

    # -- what is replied -------------------------------------------------------------------------------------------

    def reply(self, text: str) -> None:
        """Say what became of an instruction, a stop or a release."""
        if self._drive is not None:
            self._drive.reply(text)

    def reply_policy(self, text: str) -> None:
        """Say what became of the choice of a policy."""
        if self._policy is not None:
            self._policy.reply(text)

    def answer(self, answer: Answer) -> None:
        """Show what the memory answered."""
        self._memory.conversation.answer(answer)

    def close(self) -> None:
        """Stop serving."""
        if self._gate is not None:
            self._gate.close()
        self.server.stop()

    # -- what a visitor does with the graph ------------------------------------------------------------------------

    def _pick(self, node_id: str) -> None:
        with self._drawing:
            self._scene.pick(node_id, self.graph)
            self._memory.show_graph(self.graph, node_id)

    def _show_answer(self, answer: Answer) -> None:
        self._pick(answer.node_id)
        if answer.place is not None:
            self._scene.look_at(answer.place)

    def _travel(self, at_ns: int | None) -> None:
        if at_ns is None:
            self._banner.show_past("")
        self._actions.show_past(at_ns)
