"""What the executor waits for: everything that its nodes have, in one wait set of rcl."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rclpy.context import Context
from rclpy.event_handler import EventHandler
from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.waitable import NumberOfEntities

KINDS = ("subscription", "guard_condition", "timer", "client", "service")
"""What a wait set waits for, in rclpy's own words, in the order of its constructor's arguments."""


@dataclass
class WaitedFor:
    """What one wait set waits for; its handles stay alive until ``held`` is closed."""

    entities: list[Any]  # everything that the nodes have, to notice a change
    held: ExitStack = field(default_factory=ExitStack)
    by_kind: dict[str, list[Any]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    by_pointer: dict[str, dict[int, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    waitables: list[Any] = field(default_factory=list)  # actions
    events: list[Any] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)  # one entity of each callback group
    nodes: dict[int, Any] = field(default_factory=dict)  # id of an entity -> its node
    wait_set: Any = None


def entities_of(nodes: list[Any]) -> list[Any]:
    """Return everything that the nodes have."""
    return [entity for node in nodes for own in _own(node) for entity in own]


def _own(node: Any) -> tuple[Any, ...]:
    return (node.subscriptions, node.guards, node.timers, node.clients, node.services, node.waitables)


def gather(nodes: list[Any], entities: list[Any], context: Context) -> WaitedFor:
    """Return a wait set for the ``entities`` of ``nodes``."""
    waited = WaitedFor(entities)
    count = NumberOfEntities(num_gcs=2)  # the executor's own: wake-ups and SIGINT
    groups: dict[int, Any] = {}
    for node in nodes:
        for kind, own in zip((*KINDS, "waitable"), _own(node), strict=True):
            for entity in own:
                try:
                    waited.held.enter_context(entity if kind == "waitable" else entity.handle)
                except InvalidHandle:  # it is being destroyed
                    continue
                waited.nodes[id(entity)] = node
                groups.setdefault(id(entity.callback_group), entity)
                if kind == "waitable":
                    count += entity.get_num_entities()
                    (waited.events if isinstance(entity, EventHandler) else waited.waitables).append(entity)
                else:
                    waited.by_kind[kind].append(entity)
                    waited.by_pointer[kind][entity.handle.pointer] = entity
    waited.groups = list(groups.values())
    own_counts = [len(waited.by_kind[kind]) for kind in KINDS]
    count += NumberOfEntities(*own_counts)
    handle = context.handle
    assert handle is not None  # it is there from rclpy.init on, which came before the executor
    waited.held.enter_context(handle)
    waited.wait_set = _rclpy.WaitSet(
        count.num_subscriptions, count.num_guard_conditions, count.num_timers,
        count.num_clients, count.num_services, count.num_events, handle,
    )  # fmt: skip
    return waited
