"""Serves the web page: shows what the topics say, and turns a visitor's wishes into a goal or a stop.

Nothing in the loop waits for this node: it reads best effort, keeps only the newest of everything and refreshes the
page a few times a second, and only while somebody looks at it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action import ActionClient
from rclpy.client import Client
from rclpy.task import Future
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger

from engram.core.errors import InvalidInputError
from engram.core.ports import require_free_port
from engram.core.registry import make_robot
from engram.memory.query.advice import itinerary
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode, NodeConfig, run
from engram.nodes.health import ERROR, OK, TOPIC, WARN, own_name
from engram.nodes.params import param
from engram.runtime.graph_mirror import GraphMirror
from engram.runtime.policy_notes import POLICY_DRIVES, REMEMBERED
from engram.sim.tasks import task_for
from engram.viewer.page import NodeState, Outcome, PageActions, PolicyState, ViewerPage
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import SceneGraphUpdate, TaskStatus
from engram_interfaces.srv import GetGraph, MemoryQuery

LEVEL_NAMES = {OK: "ok", WARN: "warn", ERROR: "error"}
OUTCOMES_SHOWN = 6
EVIDENCE_SHOWN = 3
STOPS_SHOWN = 5
OBJECT_LAYERS = ("object", "objects")


@dataclass(frozen=True)
class ViewerNodeConfig(NodeConfig):
    """Parameters of the viewer."""

    niceness: int = param(10, 0, 19)
    """No command waits for it, so on a busy machine it stands back."""
    port: int = param(8080, 1, 65535)
    """TCP port of the page."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: every one. Whoever reaches the page can move and stop the robot."""
    robot: str = "panda_2f85"
    """Robot to draw."""
    cameras: tuple[str, ...] = ("",)
    """Cameras to show; [""]: all of the robot's."""
    refresh_s: float = param(0.2, 0.02, 10.0)
    """Time between two refreshes of the page [s]."""
    stale_after_s: float = param(5.0, 1.0, 600.0)
    """A node whose diagnostics are older than this is shown as stale [s]."""
    choose_task: bool = True
    """Find the simulated task that the words fit and begin it; false: words go to the robot as they are."""
    tasks: str = ""
    """Tasks of your own whose words are understood too, as package.module:attribute, separated by commas; the running
    one is understood without being named here."""


class ViewerNode(EngramNode):
    """The page's hands and eyes on the topics."""

    config_class = ViewerNodeConfig

    def __init__(self) -> None:
        super().__init__("viewer_node")

    def setup(self) -> None:
        """Open the page."""
        config = self.config
        require_free_port(config.port, "port:=N (launch argument or parameter)")
        self.robot = make_robot(config.robot)
        self.cameras = self.robot.chosen_cameras(config.cameras)
        self.joints: JointState | None = None
        self.images: dict[str, Image] = {}
        self.mirror = GraphMirror()
        self.graph_shown = ("", 0)
        self.asked_graph = 0.0
        self.states: dict[str, tuple[float, NodeState]] = {}  # name -> when it was heard of [monotonic s]
        self.policy = PolicyState()
        self.outcomes: deque[Outcome] = deque(maxlen=OUTCOMES_SHOWN)  # newest first
        self.wishes: deque[str] = deque()
        self.questions: deque[str] = deque()
        self.own_tasks = dict.fromkeys(self.config.tasks.split(",") if self.config.tasks else ())
        self.stop_client: Client = self.create_client(Trigger, "safety/stop")
        self.release_client: Client = self.create_client(Trigger, "safety/reset")
        self.graph_client: Client = self.create_client(GetGraph, "memory/get_graph")
        self.memory_client: Client = self.create_client(MemoryQuery, "memory/query")
        self.task_client: ActionClient = ActionClient(self, ExecuteTask, "execute_task")
        actions = PageActions(
            instruct=self.wishes.append,
            ask=self.questions.append,
            stop=lambda: self._trigger(self.stop_client, "stop"),
            release=lambda: self._trigger(self.release_client, "release"),
        )
        self.page = ViewerPage(config.port, actions, self.cameras, config.host, self.robot)
        self.get_logger().info(f"page: http://localhost:{config.port}")

    def start(self) -> None:
        """Listen to everything that is shown."""
        self.subscribe(JointState, "joint_states", self._on_joints, qos.SENSOR_BEST_EFFORT)
        self.subscribe(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        self.subscribe(DiagnosticArray, TOPIC, self._on_diagnostics, qos.DIAGNOSTICS)
        self.subscribe(SceneGraphUpdate, "memory/graph", self._on_graph, qos.GRAPH)
        for name in self.cameras:
            take = self._image_taker(name)
            self.subscribe(Image, f"camera/{name}/color/image_raw", take, qos.SENSOR_BEST_EFFORT)
        self.every(self.config.refresh_s, self._refresh, "page")
        self.every(0.05, self._fulfil, "instruction")
        self.every(0.05, self._inquire, "question")
        self.every(1.0, self._keep_graph, "memory/get_graph")

    def teardown(self) -> None:
        """Close the page."""
        self.page.close()
        self.task_client.destroy()

    # -- inputs: only the newest is kept ---------------------------------------------------------------------------

    def _on_joints(self, msg: JointState) -> None:
        self.joints = msg

    def _image_taker(self, name: str) -> Callable[[Image], None]:
        def take(msg: Image) -> None:
            self.images[name] = msg

        return take

    def _on_status(self, msg: TaskStatus) -> None:
        self.own_tasks[msg.task] = None  # task_for leaves out what is none
        words = f'"{msg.instruction}"' if msg.instruction else "no task"
        self.page.show_status(f"episode {msg.episode}, {msg.state}: {words}, step {msg.step}")
        known = self.outcomes[0].episode if self.outcomes else None
        if msg.state in ("succeeded", "failed") and msg.episode != known:
            self.outcomes.appendleft(Outcome(msg.episode, msg.instruction, msg.state, msg.step, self.policy.name))

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        now = time.monotonic()
        for status in msg.status:
            name = own_name(status.name, self.get_namespace())
            if name is None:  # another robot's
                continue
            level = LEVEL_NAMES.get(status.level, "stale")
            self.states[name] = (now, NodeState(name, level, status.message))
            if name == "policy_node":
                said = {value.key: value.value for value in status.values}
                self.policy = PolicyState(
                    said.get(POLICY_DRIVES, ""), said.get("policy version", ""), said.get(REMEMBERED, "")
                )

    def _on_graph(self, msg: SceneGraphUpdate) -> None:
        if not self.mirror.apply(msg.boot_id, messages.graph_from_msg(msg)):
            self._ask_graph()

    def _keep_graph(self) -> None:
        """Without any graph yet, ask for it: this node may have come after the last change."""
        if not self.mirror.boot_id:
            self._ask_graph()

    def _ask_graph(self) -> None:
        now = time.monotonic()
        if now - self.asked_graph < 1.0 or not self.graph_client.service_is_ready():
            return
        self.asked_graph = now
        self.graph_client.call_async(GetGraph.Request()).add_done_callback(self._take_graph)

    def _take_graph(self, future: Future) -> None:
        answer = future.result()
        if answer is not None:
            self.mirror.apply(answer.graph.boot_id, messages.graph_from_msg(answer.graph))

    # -- the page --------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Show the newest of everything, while somebody looks."""
        if not self.page.visitors:
            return
        if self.joints is not None:
            joints, self.joints = self.joints, None
            self.page.show_joints(messages.joints_from_msg(joints, self.robot.joint_names))
        images, self.images = self.images, {}
        for name, msg in images.items():
            self.page.show_camera(name, messages.color_from_msg(msg, f"camera {name!r} color"))
        if self.graph_shown != (self.mirror.boot_id, self.mirror.sequence):
            self.graph_shown = (self.mirror.boot_id, self.mirror.sequence)
            nodes = self.mirror.nodes
            self.page.show_objects({k: n for k, n in nodes.items() if n.layer in OBJECT_LAYERS})
            held = [(edge.target, nodes[edge.source].label) for edge in self.mirror.edges.values()
                    if edge.relation == "held_by" and edge.source in nodes]  # fmt: skip
            self.page.show_agents([n for n in nodes.values() if n.layer == "agent"], dict(held))
        self.page.show_nodes(self._node_states())
        self.page.show_policy(self.policy, self.outcomes)

    def _node_states(self) -> list[NodeState]:
        now = time.monotonic()
        states = []
        for name, (heard, state) in sorted(self.states.items()):
            silent = now - heard
            if silent > self.config.stale_after_s:
                state = NodeState(name, "stale", f"silent for {silent:.0f} s; before: {state.message}")
            states.append(state)
        return states

    # -- what a visitor wants --------------------------------------------------------------------------------------

    def _trigger(self, client: Client, what: str) -> None:
        """Call a safety service at once, from viser's thread."""
        if not client.service_is_ready():
            self.page.answer(f"{what}: there is no safety node! Use the robot's own stop.")
            return

        def tell(done: Future) -> None:
            answer = done.result()
            self.page.answer(f"{what}: {answer.message if answer else 'no answer'}")

        client.call_async(Trigger.Request()).add_done_callback(tell)

    def _fulfil(self) -> None:
        """Turn an instruction into a goal."""
        if not self.wishes:
            return
        words = self.wishes.popleft()
        try:
            task = task_for(words, self.own_tasks) if self.config.choose_task else ""
        except InvalidInputError as error:
            self.page.answer(str(error))
            return
        if not self.task_client.server_is_ready():
            self.page.answer("the policy node is not active yet: nobody takes instructions")
            return
        self.page.answer(f'"{words}": begun')
        self.task_client.send_goal_async(ExecuteTask.Goal(instruction=words, task=task)).add_done_callback(
            lambda future: self._follow(words, future)
        )

    def _inquire(self) -> None:
        """Put a question to the memory."""
        if not self.questions:
            return
        words = self.questions.popleft()
        if not words or not self.memory_client.service_is_ready():
            self.page.tell("Write a question first." if not words else "There is no memory node to ask.")
            return
        self.page.tell(f'"{words}" ...')
        self.memory_client.call_async(MemoryQuery.Request(text=words)).add_done_callback(self._told)

    def _told(self, future: Future) -> None:
        found = future.result()
        if found is None:
            self.page.tell("The memory gave no answer.")
            return
        ago = f", {found.age:.0f} s ago" if found.age >= 0 else ""
        sure = f"{100 * found.confidence:.0f} % sure{ago}" if found.confidence > 0 else ""
        stops = list(map(messages.xyz, found.route)) if found.look else []
        route = itinerary(found.route_labels, stops, found.route_chances, STOPS_SHOWN)
        self.page.tell(found.answer, sure, found.advice, route, *found.evidence[:EVIDENCE_SHOWN])

    def _follow(self, words: str, future: Future) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            self.page.answer(f'"{words}": not accepted')
            return
        handle.get_result_async().add_done_callback(lambda f: self._tell(words, f))

    def _tell(self, words: str, future: Future) -> None:
        answer = future.result()
        if answer is not None:
            result = answer.result
            self.page.answer(f'"{words}": {result.outcome} after {result.steps} steps ({result.reason})')


def main() -> int:
    """Run the node."""
    return run(ViewerNode)


if __name__ == "__main__":
    sys.exit(main())
