"""The memory's services take no more questions than they answer soon, and hold up no scene."""

import threading
from types import SimpleNamespace

from rclpy.task import Future
from std_srvs.srv import Trigger

from engram.core.types import GraphUpdate
from engram.nodes.memory_services import MemoryServices
from engram.runtime.worker import LATER_MAX, Worker
from engram_interfaces.srv import GetGraph, MemoryQuery


class Memory:
    """A memory whose graph takes as long as the test wants."""

    def __init__(self, done):
        self.done, self.begun, self.go_on = done, threading.Event(), threading.Event()

    def graph(self, at_ns):
        self.begun.set()
        self.go_on.wait(60)
        self.done.append("graph")
        return GraphUpdate(0, 7, True, ())


def step(call):
    """Go on with a coroutine; return its answer, or None while it waits."""
    try:
        return call.send(None)
    except StopIteration as end:
        return end.value


def test_a_flood_of_questions_is_answered_that_the_memory_is_busy_and_a_scene_comes_next():
    done, services, reports, promised = [], {}, [], []
    memory, config = Memory(done), SimpleNamespace(frame="base_link")
    node = SimpleNamespace(
        config=config, promise=lambda: promised.append(Future()) or promised[-1],
        report=lambda name, error: reports.append(f"{name}: {error}"),
        serve=lambda kind, name, call: services.update({name: call}),
    )  # fmt: skip
    worker = Worker("memory", lambda job: job(), capacity=256, on_error=lambda error: None)
    MemoryServices(node, memory, SimpleNamespace(sequence=7), worker, "boot")
    calls = [services["memory/get_graph"](GetGraph.Request(), None) for _ in range(1000)]
    waiting = [calls.pop(0)]
    assert step(waiting[0]) is None and memory.begun.wait(60)
    answers = {call: step(call) for call in calls}
    refused = [answer for answer in answers.values() if answer is not None]
    waiting += [call for call, answer in answers.items() if answer is None]
    assert len(waiting) == 1 + LATER_MAX and len(refused) == 999 - LATER_MAX
    assert not any(answer.graph.full for answer in refused)
    assert set(reports) == {"memory/get_graph: the memory is busy: 32 questions wait, ask again later"}
    asked = step(services["memory/query"](MemoryQuery.Request(text="where is the cup"), None))
    assert asked.answer == "no answer: the memory is busy: 32 questions wait, ask again later"
    taken = threading.Event()
    worker.put(lambda: done.append(sum(answer.done() for answer in promised)) or taken.set())
    memory.go_on.set()
    assert taken.wait(60) and worker.stop(60)
    whole = [step(call) for call in waiting]
    assert all(answer is whole[0] for answer in whole) and whole[0].graph.sequence == 7
    assert done == ["graph", 1], "the scene comes after the question at hand, and one graph is for all that wait"


def serving(memory, feed):
    """Return the worker of services that ask ``memory``, and the services by name."""
    services = {}
    node = SimpleNamespace(
        config=SimpleNamespace(frame="base_link"), promise=Future, report=lambda name, error: None,
        serve=lambda kind, name, call: services.update({name: call}),
    )  # fmt: skip
    worker = Worker("memory", lambda job: job(), capacity=256, on_error=lambda error: None)
    MemoryServices(node, memory, feed, worker, "boot")
    return worker, services


def test_a_graph_that_has_changed_is_not_shared():
    memory, feed = Memory(done := []), SimpleNamespace(sequence=7)
    worker, services = serving(memory, feed)
    for _ in range(3):
        step(services["memory/get_graph"](GetGraph.Request(), None))
        assert memory.begun.wait(60)

    def scene():
        done.append("scene")
        feed.sequence += 1  # the graph is another one now

    ended = threading.Event()
    worker.put(scene)
    worker.put_later(ended.set)
    memory.go_on.set()
    assert ended.wait(60) and worker.stop(60)
    assert done == ["graph", "scene", "graph"]


def test_the_graph_that_was_told_is_not_kept_for_a_question_that_does_not_wait():
    """A scene that waits is none: it may be the last for long, and a whole graph takes much room."""
    memory = Memory(done := [])
    worker, services = serving(memory, SimpleNamespace(sequence=7))
    step(services["memory/get_graph"](GetGraph.Request(), None))
    assert memory.begun.wait(60)
    scene, ended = threading.Event(), threading.Event()
    worker.put(scene.set)
    memory.go_on.set()
    assert scene.wait(60)
    step(services["memory/get_graph"](GetGraph.Request(), None))
    worker.put_later(ended.set)
    assert ended.wait(60) and worker.stop(60)
    assert done == ["graph", "graph"]


def test_who_asks_for_the_graph_too_soon_is_told_how_long_to_wait():
    services, promised, waits = {}, [], [0.0, 12.34]
    node = SimpleNamespace(
        promise=lambda: promised.append(Future()) or promised[-1], report=lambda name, error: None,
        serve=lambda kind, name, call: services.update({name: call}),
    )  # fmt: skip
    worker = Worker("memory", lambda job: job(), capacity=256, on_error=lambda error: None)
    MemoryServices(node, None, SimpleNamespace(share_full=lambda: waits.pop(0)), worker, "boot")
    calls = [services["memory/publish_graph"](Trigger.Request(), None) for _ in waits]
    for call in calls:
        step(call)
    assert worker.stop(60)
    answers = [step(call) for call in calls]
    assert [(one.success, one.message) for one in answers] == [
        (True, "published"),
        (False, "it was published a moment ago; ask again in 12.3 s"),
    ]
