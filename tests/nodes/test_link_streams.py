"""The link node offers no more compressed topics than there are cameras, whatever names the graph has."""

from types import SimpleNamespace

import pytest

from engram.nodes.link_node import GONE_S, MOST_STREAMS, LinkNode
from engram.runtime.health import Health
from engram.runtime.link_watch import LinkWatch


class Link(LinkNode):
    """A link node in a graph that the test draws."""

    def __init__(self):
        self.streams, self.health, self.wanted = {}, Health(), False
        self.raw = {}  # image topic -> its publishers
        self.logged = []

    def get_logger(self):
        return SimpleNamespace(
            warning=lambda text: self.logged.append(("warning", text)),
            info=lambda text: self.logged.append(("info", text)),
        )

    def get_namespace(self):
        return "/"

    def get_topic_names_and_types(self):
        return [(f"/{topic}", ["sensor_msgs/msg/Image"]) for topic in self.raw]

    def count_publishers(self, topic):
        return self.raw.get(topic, 0)

    def create_publisher(self, kind, topic, profile):
        return SimpleNamespace(topic=topic, get_subscription_count=lambda: int(self.wanted))

    def create_subscription(self, *_):
        return "subscription"

    def destroy_publisher(self, publisher):
        assert publisher.topic.endswith("/compressed")

    def destroy_subscription(self, subscription):
        assert subscription == "subscription"

    def guarded(self, name, callback):
        return callback


@pytest.fixture
def link():
    return Link()


def color(name):
    return f"camera/{name}/color/image_raw"


def test_made_up_cameras_get_no_writers_without_end_and_make_room_when_they_are_gone(link):
    link.raw = {color(f"made_up_{number}"): 1 for number in range(1000)}
    link._serve()
    assert len(link.streams) == MOST_STREAMS
    assert "is left out: there are 32 image topics already" in link.health.condition("active").message
    link.raw = {color("front"): 1}
    for _ in range(2):
        link._serve()
    assert list(link.streams) == [color("front")]


def test_a_camera_that_nobody_publishes_is_not_offered_and_one_that_is_wanted_stays_for_a_while(link, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("engram.nodes.link_node.time.monotonic", lambda: now_s[0])
    link.raw = {color("front"): 0}
    link._serve()
    assert not link.streams
    link.raw, link.wanted = {color("front"): 1}, True
    link._serve()
    link.raw = {color("front"): 0}  # its driver is started again
    link._serve()
    assert link.streams[color("front")].subscription
    link.raw = {color("front"): 1}
    link._serve()
    link.wanted = False
    link._serve()
    assert not link.streams[color("front")].subscription
    link.raw, link.wanted = {color("front"): 0}, True
    now_s[0] += GONE_S - 0.1
    link._serve()
    assert link.streams[color("front")].subscription
    now_s[0] += 0.2
    link._serve()  # who wants it, the page, waits for this publisher to go
    assert not link.streams


def test_a_link_that_is_restored_is_good_news(link, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("engram.nodes.link_node.time.monotonic", lambda: now_s[0])
    link.watch = LinkWatch(("sim_node",), 5.0)
    for silence_s in (0.0, 6.0):
        link.watch.heard("sim_node", now_s[0])
        now_s[0] += silence_s
        link._look()
    link.watch.heard("sim_node", now_s[0])
    link._look()
    link._look()
    assert link.logged == [
        ("warning", "link lost: nothing from sim_node for 6 s"),
        ("info", "link restored after 6.0 s at most"),
    ]
