"""Permissions of every node for SROS 2, from the tables of topics and services that the node reference shows.

``python -m engram.app.reference`` writes ``config/sros2/engram.policy.xml`` for a robot without a namespace. For
another one: ``python -m engram.app.permissions --namespace r1 > r1.policy.xml``, with ``--learner-of`` where another
robot's learner drives it. What no table names, no node may do.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from xml.etree import ElementTree as Xml

import tyro

from engram.app.node_reference import SERVICES, TOPICS
from engram.core.errors import unknown_name

NODES = {
    "sim": "sim_node",
    "robot": "robot_node",
    "perception": "perception_node",
    "memory": "memory_node",
    "policy": "policy_node",
    "safety": "safety_node",
    "learner": "learner_node",
    "gate": "gate_node",
    "viewer": "viewer_node",
    "link": "link_node",
    "far_link": "far_link_node",
    "lifecycle_manager": "lifecycle_manager",
    "operator": "engram_demo",
    "teleoperation": "teleoperation",
}
"""Name in the tables -> node. The operator is the node of `engram do`, `stop`, `promote`, `demo` and their like,
teleoperation that of `engram teleop`."""
EVERY = ("all", "every node")
OTHERS = ("drivers", "RViz", "yours", "detectors of others", "ros2_control")
"""Whom else the tables name."""
MANAGED = tuple(node for name, node in NODES.items() if name not in ("lifecycle_manager", "operator", "teleoperation"))
CALLERS: dict[str, tuple[str, ...]] = {
    "sim/reset": ("policy", "operator"),
    "execute_task": ("viewer", "operator"),
    "execute_task/cancel": ("viewer", "operator"),
    "execute_task/succeeded": ("viewer", "operator", "teleoperation"),
    "execute_task/failed": ("viewer", "operator", "teleoperation"),
    "safety/stop": ("viewer", "operator", "teleoperation"),
    "safety/reset": ("viewer", "operator"),
    "memory/query": ("viewer",),
    "memory/get_graph": ("viewer",),
    "memory/publish_graph": ("safety", "teleoperation"),
    "policy/promote": ("gate", "operator"),
    "policy/rollback": ("operator",),
    "lifecycle_manager/is_active": ("operator",),
}
"""Services and actions -> who calls them. Those that nobody calls here are for nodes of your own."""
PARAMETERS = (
    *("describe_parameters", "get_parameter_types", "get_parameters", "get_type_description", "list_parameters"),
    *("set_parameters", "set_parameters_atomically"),
)
LIFECYCLE = ("change_state", "get_available_states", "get_available_transitions", "get_state", "get_transition_graph")
OF_LEARNER = ("experience", "experience/ack", "policy/candidate", "policy/gate", "policy/manifest", "policy/weights")
"""Topics of a learner and its gate: where a robot has none, they are another robot's."""
CHOOSES_POLICY = ("viewer", "operator")
OPERATOR_HEARS = ("command",)
GREETED = {"operator": ("sim_node", "policy_node"), "teleoperation": ("safety_node",)}
"""Whose parameters somebody from outside reads, for one to see that the other has discovered it."""


@dataclass
class Permissions:
    """What one node may do, in full names."""

    publish: set[str] = field(default_factory=set)
    subscribe: set[str] = field(default_factory=set)
    reply: set[str] = field(default_factory=set)
    request: set[str] = field(default_factory=set)
    execute: set[str] = field(default_factory=set)
    call: set[str] = field(default_factory=set)


def permissions(namespace: str = "", learner_of: str = "") -> dict[str, Permissions]:
    """Return what each node of a robot in ``namespace`` may do, by its name; ``learner_of``: another's namespace."""
    prefix, learner = ("/" + space.strip("/") if space.strip("/") else "" for space in (namespace, learner_of))
    found: dict[str, Permissions] = defaultdict(Permissions)
    for topic, _, way, _ in TOPICS:
        writers, _, readers = way.partition(";")[0].partition("->")
        name = _absolute(learner if learner and topic in OF_LEARNER else prefix, topic.replace("<name>", "*"))
        for node in _named(writers):
            found[node].publish.add(name)
        for node in _named(readers):
            found[node].subscribe.add(name)
    for service, kind, server, _ in SERVICES:
        if service.startswith("<node>"):
            continue
        name, is_action = _absolute(prefix, service), "/action/" in kind
        for node in _named(server):
            (found[node].execute if is_action else found[node].reply).add(name)
        for node in (NODES[caller] for caller in CALLERS.get(service, ())):
            (found[node].call if is_action else found[node].request).add(name)
    _add_common(found, prefix)
    return {node: found[node] for name, node in NODES.items() if not (learner and name in ("learner", "gate"))}


def _add_common(found: dict[str, Permissions], prefix: str) -> None:
    """Add what rclpy, the lifecycle and the choice of a policy bring with them."""
    for node in NODES.values():
        found[node].publish |= {"/rosout", "/parameter_events", "/diagnostics"}
        found[node].subscribe |= {"/clock", "/parameter_events"}
        found[node].reply |= {f"{prefix}/{node}/{service}" for service in PARAMETERS}
    for node in MANAGED:
        found[node].publish.add(f"{prefix}/{node}/transition_event")
        found[node].reply |= {f"{prefix}/{node}/{service}" for service in LIFECYCLE}
        manager = found[NODES["lifecycle_manager"]]
        manager.request |= {f"{prefix}/{node}/{service}" for service in ("change_state", "get_state")}
    operator = found[NODES["operator"]]
    operator.subscribe |= {"/diagnostics", *(f"{prefix}/{topic}" for topic in OPERATOR_HEARS)}
    for name, greeted in GREETED.items():
        found[NODES[name]].request |= {f"{prefix}/{node}/get_parameters" for node in greeted}
    for name in CHOOSES_POLICY:
        found[NODES[name]].request.add(f"{prefix}/{NODES['policy']}/set_parameters_atomically")


def _named(words: str) -> list[str]:
    """Return the nodes that a cell of a table names; others, such as drivers, have permissions of their own.

    Raises:
        UnknownNameError: a word that is neither: a node would silently lack a permission.
    """
    names = [re.sub(r"\(.*?\)| with .*", "", word).strip() for word in words.split(",")]
    for name in names:
        if name not in (*NODES, *EVERY, *OTHERS):
            raise unknown_name("node in the tables of topics and services", name, (*NODES, *EVERY, *OTHERS))
    if any(name in EVERY for name in names):
        return list(NODES.values())
    return [NODES[name] for name in names if name in NODES]


def _absolute(prefix: str, name: str) -> str:
    return name if name.startswith("/") else f"{prefix}/{name}"


def policy_xml(namespace: str = "", learner_of: str = "") -> str:
    """Return the policy file for ``ros2 security generate_artifacts -p``: one enclave a node."""
    space = namespace.strip("/")
    policy = Xml.Element("policy", version="0.2.0")
    enclaves = Xml.SubElement(policy, "enclaves")
    for node, allowed in permissions(namespace, learner_of).items():
        path = "/".join(filter(None, ("/engram", space, node)))
        enclave = Xml.SubElement(enclaves, "enclave", path=path)
        profiles = Xml.SubElement(enclave, "profiles")
        profile = Xml.SubElement(profiles, "profile", ns=f"/{space}", node=node)
        for group, way, one, names in (
            ("topics", "publish", "topic", allowed.publish),
            ("topics", "subscribe", "topic", allowed.subscribe),
            ("services", "reply", "service", allowed.reply),
            ("services", "request", "service", allowed.request),
            ("actions", "execute", "action", allowed.execute),
            ("actions", "call", "action", allowed.call),
        ):
            if names:
                rule = Xml.SubElement(profile, group, {way: "ALLOW"})
                for name in sorted(names):
                    Xml.SubElement(rule, one).text = name
    Xml.indent(policy)
    text = Xml.tostring(policy, encoding="unicode")
    return f"<?xml version='1.0' encoding='UTF-8'?>\n<!-- Written by python -m engram.app.reference. -->\n{text}\n"


def main(namespace: str = "", learner_of: str = "") -> None:
    """Print the SROS 2 policy of a robot.

    Args:
        namespace: the robot's namespace.
        learner_of: that of the robot whose learner it has, as the launch argument of this name says.
    """
    sys.stdout.write(policy_xml(namespace, learner_of))


if __name__ == "__main__":
    tyro.cli(main)
