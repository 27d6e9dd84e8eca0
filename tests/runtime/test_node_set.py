"""Several managed nodes, without ROS: in which order they move, who holds when one hangs, and what is said of them."""

import pytest

from engram.core.errors import InvalidInputError
from engram.runtime.health import ERROR, OK, WARN
from engram.runtime.node_set import NodeSet
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig
from tests.runtime.scripted_node import Said, ScriptedNode


class Desk:
    """A set of scripted nodes at which its manager looks twice a second."""

    def __init__(self, *names: str, optional: tuple[str, ...] = (), **config):
        self.journal, self.now, self.said = [], 100.0, Said()
        self.nodes = {name: ScriptedNode(name, self.journal) for name in (*names, *optional)}
        config = LifecycleManagerConfig(node_names=names, optional_names=optional, **config)
        self.managed = NodeSet(config, self.nodes.__getitem__, self.said, lambda: self.now)

    def run(self, seconds: float):
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            self.managed.tick()

    def states(self) -> dict[str, str]:
        return dict(self.managed.condition().values)


@pytest.fixture(autouse=True)
def marks(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_nodes_are_configured_side_by_side_activated_in_order_and_deactivated_in_the_opposite_one():
    desk = Desk("b", "c", "a")
    desk.run(5.0)
    assert desk.journal == [(name, step) for step in ("configure", "activate") for name in "bca"]
    assert desk.managed.active and desk.said.infos[-1] == "all nodes are active"
    desk.journal.clear()
    desk.managed.drive("unconfigured")
    desk.run(5.0)
    assert desk.journal == [(name, step) for step in ("deactivate", "cleanup") for name in "acb"]
    assert any(said.startswith("not active any more: 0 of 3 active; b ") for said in desk.said.infos)


def test_a_node_waits_for_those_before_it_unless_they_were_given_up_or_are_not_wanted():
    desk = Desk("first", "second", optional=("never",), max_attempts=1)
    desk.nodes["first"].there = desk.nodes["never"].there = False
    desk.run(5.0)
    assert desk.states() == {"first": "absent", "second": "inactive"}
    desk.nodes["first"].there = desk.nodes["first"].fails = True
    desk.run(5.0)
    assert desk.states() == {"first": "failed", "second": "active"}
    assert desk.managed.summary() == "1 of 2 active; first failed: configure failed; the node's own log says why"
    desk.nodes["first"].fails = False
    desk.managed.drive("active")  # those that were given up are tried again
    desk.run(5.0)
    assert desk.managed.summary() == "2 of 2 active"


def test_who_moves_the_robot_holds_while_another_node_hangs():
    desk = Desk("safety_node", "policy_node", optional=("extra_node",), motion_node="policy_node")
    desk.run(5.0)
    assert desk.managed.active
    desk.nodes["extra_node"].answers = False
    desk.run(13.0)
    assert desk.states() == {"safety_node": "active", "policy_node": "active", "extra_node": "silent"}
    desk.nodes["safety_node"].answers = False
    desk.run(13.0)
    assert (desk.states()["safety_node"], desk.states()["policy_node"]) == ("silent", "inactive")
    desk.nodes["safety_node"].answers = True
    desk.run(8.0)
    assert (desk.states()["safety_node"], desk.states()["policy_node"]) == ("active", "active")


def test_a_manager_that_stood_still_finds_nobody_silent():
    desk = Desk("one")
    desk.run(5.0)
    desk.nodes["one"].answers = False
    desk.now += 60.0
    desk.run(5.0)
    assert desk.states() == {"one": "active"} and not desk.said.errors


def test_the_level_says_whether_somebody_is_needed():
    desk = Desk("one", autostart=False)
    desk.nodes["one"].there = False
    desk.run(1.0)
    assert desk.managed.condition().level == WARN  # nobody asked for it yet
    desk.managed.drive("active")
    assert desk.managed.condition().level == ERROR
    desk.nodes["one"].there = True
    desk.run(1.0)
    assert desk.managed.condition().level == WARN  # on its way
    desk.run(4.0)
    assert desk.managed.condition().level == OK


def test_without_autostart_nothing_moves():
    desk = Desk("one", autostart=False)
    desk.run(10.0)
    assert (desk.journal, desk.states()) == ([], {"one": "unconfigured"})


@pytest.mark.parametrize(("names", "optional"), [((), ()), (("",), ("a",)), (("a", "a"), ()), (("a",), ("a",))])
def test_at_least_one_node_is_named_and_none_twice(names, optional):
    with pytest.raises(InvalidInputError, match=r"node_names.*expected at least one name, none twice"):
        Desk(*names, optional=optional)
