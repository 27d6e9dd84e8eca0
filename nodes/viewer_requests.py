"""What a visitor of the page asks for, turned into actions, services and parameters; the replies go to the page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from rcl_interfaces.srv import SetParametersAtomically
from rclpy.action import ActionClient
from rclpy.client import Client
from rclpy.parameter import Parameter
from rclpy.task import Future
from std_srvs.srv import Trigger

from engram.core.errors import InvalidInputError
from engram.core.types import GraphUpdate
from engram.memory.query.advice import itinerary
from engram.nodes import messages
from engram.nodes.base import EngramNode
from engram.runtime.goal_book import TOLD
from engram.runtime.goal_words import outcome_words
from engram.viewer.page import ViewerPage
from engram.viewer.values import Answer, PageActions
from engram_interfaces.action import ExecuteTask
from engram_interfaces.srv import GetGraph, MemoryQuery

UNANSWERED_S = 2.0
"""Who waits for a service longer is told so [s]; a stop is then asked for again."""
EVIDENCE_SHOWN = 3
STOPS_SHOWN = 5


class VisitorRequests:
    """Takes requests from viser's threads and carries them out in the node's own, but for stop and release.

    Args:
        node: whose clients these are.
        task_for: gives the task that an instruction begins; raises InvalidInputError.
        show_past: shows the memory at a stamp [ns]; None: now.
        draw: does what takes the page long, in a thread of its own.
    """

    def __init__(
        self, node: EngramNode, task_for: Callable[[str], str], show_past: Callable[[int | None], None],
        draw: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        self._task_for, self._draw = task_for, draw
        self._jobs: deque[Callable[[], None]] = deque()
        self._asked: deque[tuple[float, Client, str, Future]] = deque()  # when it is overdue; the oldest first
        self._stop: Client = node.create_client(Trigger, "safety/stop")
        self._release: Client = node.create_client(Trigger, "safety/reset")
        self._memory: Client = node.create_client(MemoryQuery, "memory/query")
        self._graph: Client = node.create_client(GetGraph, "memory/get_graph")
        self._policy: Client = node.create_client(SetParametersAtomically, "policy_node/set_parameters_atomically")
        self._task: ActionClient = ActionClient(node, ExecuteTask, "execute_task")
        self.page: ViewerPage  # set before anything is carried out
        told: dict[str, Client] = {how: node.create_client(Trigger, f"execute_task/{how}") for how in TOLD}
        self.actions = PageActions(
            instruct=self._later(self._instruct),
            ask=self._later(self._ask),
            tell=lambda how: self._trigger(told[how], how),
            stop=lambda: self._trigger(self._stop, "stop"),
            release=lambda: self._trigger(self._release, "release"),
            show_past=self._later(lambda at_ns: draw(lambda: show_past(at_ns))),
            choose_policy=self._later(self._choose_policy),
        )

    def _later[T](self, work: Callable[[T], None]) -> Callable[[T], None]:
        return lambda wish: self._jobs.append(partial(work, wish))

    def carry_out(self) -> None:
        """Carry out what was asked for since the last call; in the node's thread."""
        while self._jobs:
            self._jobs.popleft()()
        while self._asked and (self._asked[0][3].done() or self._asked[0][0] < time.monotonic()):
            _, client, what, answer = self._asked.popleft()
            if not answer.done():
                client.remove_pending_request(answer)
                told = f"{what}: no answer for {UNANSWERED_S:g} s! Do not rely on it: use the robot's own stop."
                self.page.reply(told)
                if client is self._stop:
                    self._trigger(client, what)

    def close(self) -> None:
        """Take no more requests."""
        self._task.destroy()

    # -- stop and release ------------------------------------------------------------------------------------------

    def _trigger(self, client: Client, what: str) -> None:
        """Call a service at once, from viser's thread."""
        if not client.service_is_ready():
            self.page.reply(f"{what}: no node answers! {client.srv_name} is not there; use the robot's own stop.")
            return

        def reply(done: Future) -> None:
            answer = done.result()
            self.page.reply(f"{what}: {answer.message if answer else 'no answer'}")

        asked = client.call_async(Trigger.Request())
        self._asked.append((time.monotonic() + UNANSWERED_S, client, what, asked))
        asked.add_done_callback(reply)

    # -- instructions ----------------------------------------------------------------------------------------------

    def _instruct(self, words: str) -> None:
        try:
            task = self._task_for(words)
        except InvalidInputError as error:
            self.page.reply(str(error))
            return
        if not self._task.server_is_ready():
            self.page.reply("The policy node is not active yet: nothing takes instructions.")
            return
        self.page.reply(f'"{words}": sent')
        goal = ExecuteTask.Goal(instruction=words, task=task)
        self._task.send_goal_async(goal).add_done_callback(lambda future: self._follow(words, future))

    def _follow(self, words: str, future: Future) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            self.page.reply(f'"{words}": refused by the policy node')
            return
        handle.get_result_async().add_done_callback(lambda done: self._finished(words, done))

    def _finished(self, words: str, future: Future) -> None:
        answer = future.result()
        if answer is not None:
            result = answer.result
            told = outcome_words(result.outcome, result.reason, result.steps, result.duration_s)
            self.page.reply(f'"{words}": {told}')

    # -- questions -------------------------------------------------------------------------------------------------

    def _ask(self, words: str) -> None:
        if not self._memory.service_is_ready():
            self.page.answer(Answer(words, "No memory node runs."))
            return
        asked = self._memory.call_async(MemoryQuery.Request(text=words))
        asked.add_done_callback(lambda future: self._answered(words, future))

    def _answered(self, words: str, future: Future) -> None:
        found = future.result()
        if found is None:
            self.page.answer(Answer(words, "The memory gave no answer."))
            return
        stops = [messages.xyz(place) for place in found.route] if found.look else []
        route = itinerary(found.route_labels, stops, found.route_chances, STOPS_SHOWN)
        first = found.nodes[0] if found.nodes else None
        answer = Answer(
            question=words, text=found.answer, confidence=found.confidence, age_s=found.age,
            details=(found.advice, route, *found.evidence[:EVIDENCE_SHOWN]),
            node_id=first.id if first is not None else "", label=first.label if first is not None else "",
            place=messages.xyz(first.pose.position) if first is not None else None,
        )  # fmt: skip
        self._draw(lambda: self.page.answer(answer))

    def ask_graph(self, at_ns: int | None, then: Callable[[str, GraphUpdate], None]) -> bool:
        """Ask the memory for its graph as of ``at_ns``, and draw it; see :class:`engram.viewer.graph_feed.AskGraph`."""
        if not self._graph.service_is_ready():
            return False

        def answered(future: Future) -> None:
            if (answer := future.result()) is not None and (graph := answer.graph).full:  # else it was refused
                self._draw(lambda: then(graph.boot_id, messages.graph_from_msg(graph)))

        self._graph.call_async(GetGraph.Request(at=messages.to_stamp(at_ns or 0))).add_done_callback(answered)
        return True

    # -- the policy ------------------------------------------------------------------------------------------------

    def _choose_policy(self, name: str) -> None:
        if not self._policy.service_is_ready():
            self.page.reply_policy("No policy node runs.")
            return
        request = SetParametersAtomically.Request(parameters=[Parameter("policy", value=name).to_parameter_msg()])
        self._policy.call_async(request).add_done_callback(lambda future: self._policy_set(name, future))

    def _policy_set(self, name: str, future: Future) -> None:
        answer = future.result()
        if answer is None or not answer.result.successful:
            self.page.reply_policy(f"{name} was refused: {answer.result.reason if answer else 'no answer'}")
        else:
            self.page.reply_policy(f"{name} is being loaded and drives from the next episode on.")
