"""What the memory holds, as lists: objects, those believed gone, robots, rooms and relations."""

from __future__ import annotations

from engram.core.types import SceneNode
from engram.memory.graph.embodiments import described
from engram.viewer.markup import duration, heading, paragraph, text_table
from engram.viewer.values import MOST_SHOWN, Graph

RELATIONS_SHOWN = 60
ROOM_FOR = f"the page has room for the {MOST_SHOWN} objects, {MOST_SHOWN} rooms and {MOST_SHOWN} robots seen last"


def remembered_html(graph: Graph) -> str:
    """Return the whole list."""
    if not graph.nodes:
        return paragraph("The memory holds nothing yet.")
    there = [n for n in graph.objects if n.state != "absent"]
    gone = [n for n in graph.objects if n.state == "absent"]
    return "".join((
        heading("Objects") + (_objects(there, graph) if there else paragraph("none")),
        heading("Believed gone") + _objects(gone, graph) if gone else "",
        heading("Relations") + _relations(graph) if graph.edges else "",
        heading("Rooms and places") + _rooms(graph) if graph.rooms else "",
        heading("Robots") + agents_html(graph) if graph.of("agent") else "",
        paragraph(f"{graph.left_out} more are not shown: {ROOM_FOR}.") if graph.left_out else "",
    ))  # fmt: skip


def _objects(nodes: list[SceneNode], graph: Graph) -> str:
    return text_table(
        [(n.label, n.state, _place(n), f"{n.belief:.2f}", _seen(n, graph.stamp_ns)) for n in nodes],
        ("object", "state", "place [m]", "belief", "last seen"),
    )


def _place(node: SceneNode) -> str:
    return " ".join(f"{c:.2f}" for c in node.pose.position)


def _seen(node: SceneNode, now_ns: int) -> str:
    if node.state == "visible":
        return "in view"
    return f"{duration(max(0, now_ns - node.last_seen_ns) / 1e9)} ago" if node.last_seen_ns else "never"


def _relations(graph: Graph) -> str:
    """Relations in words, what carries something before what is only near."""
    edges = sorted(graph.edges, key=lambda e: (e.relation == "near", graph.label(e.source), e.relation))
    rows = [(graph.label(e.source), e.relation.replace("_", " "), graph.label(e.target)) for e in edges]
    more = len(rows) + graph.relations_left_out - RELATIONS_SHOWN
    return text_table(rows[:RELATIONS_SHOWN]) + (paragraph(f"and {more} more") if more > 0 else "")


def _rooms(graph: Graph) -> str:
    inside = {n.id: [e.source for e in graph.edges if e.target == n.id] for n in graph.rooms}
    return text_table([(n.label, n.layer, f"{len(inside[n.id])} things on or in it") for n in graph.rooms])


def agents_html(graph: Graph) -> str:
    """Return the robots: where each stands, what it holds and what it is."""
    rows = []
    for node in graph.of("agent"):
        x, y, _ = node.pose.position
        place = f"{x:.2f} {y:.2f} m" if node.belief > 0 else "place not known"
        held = graph.held_by(node.id)
        holds = f"holds the {', the '.join(held)}" if held else "holds nothing known"
        rows.append((node.label, place, holds, described(node.embodiment)))
    return text_table(rows) if rows else ""


def details_html(node: SceneNode, graph: Graph) -> str:
    """Return all that is known of one object, for the one a visitor picked."""
    edges = [e for e in graph.edges if node.id in (e.source, e.target)][:RELATIONS_SHOWN]
    words = [f"{graph.label(e.source)} {e.relation.replace('_', ' ')} {graph.label(e.target)}" for e in edges]
    rows = [
        ("state", f"{node.state}, belief {node.belief:.2f}"),
        ("place [m]", _place(node)),
        ("size [m]", " ".join(f"{s:.2f}" for s in node.size)),
        ("seen", f"{node.observations} times, last {_seen(node, graph.stamp_ns)}"),
        ("relations", "; ".join(words) + (" ..." if len(words) == RELATIONS_SHOWN else "") or "none"),
        ("id", node.id),
    ]
    return heading(f"Picked: {node.label}") + text_table(rows)
