"""A copy of the scene graph follows updates and notices when one was lost."""

from __future__ import annotations

from engram.core.types import GraphUpdate
from engram.runtime.graph_mirror import BACKLOG, GraphMirror
from tests.viewer.scenes import scene_node


def test_a_mirror_follows_updates_and_notices_gaps() -> None:
    mirror = GraphMirror()
    a, b = scene_node("object/1", "red cube", 0.4), scene_node("object/2", "cup", 0.5)
    assert not mirror.apply("boot", GraphUpdate(0, 1, False, (a,)))  # nothing known yet: ask for all of it
    assert mirror.apply("boot", GraphUpdate(0, 4, True, (a,)))
    assert mirror.apply("boot", GraphUpdate(0, 5, False, (b,)))
    assert mirror.apply("boot", GraphUpdate(0, 5, False, ()))  # seen before
    assert set(mirror.nodes) == {"object/1", "object/2"}
    assert not mirror.apply("boot", GraphUpdate(0, 7, False, (), deleted_nodes=("object/1",)))  # 6 was lost
    assert not mirror.apply("reboot", GraphUpdate(0, 6, False, ()))
    assert mirror.apply("boot", GraphUpdate(0, 4, True, ()))  # an answer that came too late changes nothing
    assert mirror.apply("boot", GraphUpdate(0, 6, False, (), deleted_nodes=("object/1",)))
    assert set(mirror.nodes) == {"object/2"}


def test_a_sequence_number_that_the_memory_never_reached_is_undone_by_what_follows() -> None:
    mirror = GraphMirror()
    cup = scene_node("object/2", "cup", 0.5)
    assert mirror.apply("boot", GraphUpdate(0, 4, True, ()))
    assert mirror.apply("boot", GraphUpdate(0, 2**40, True, ()))  # somebody else's
    behind = [mirror.apply("boot", GraphUpdate(0, 5 + number, False, (cup,))) for number in range(BACKLOG + 1)]
    assert behind == [True] * BACKLOG + [False]  # now it asks for everything
    assert mirror.apply("boot", GraphUpdate(0, 69, True, (cup,)))
    assert mirror.apply("boot", GraphUpdate(0, 70, False, ()))
    assert (set(mirror.nodes), mirror.sequence) == ({"object/2"}, 70)
