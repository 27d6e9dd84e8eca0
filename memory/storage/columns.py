"""The nodes of the scene graph as columns: one row a node, the same row in RAM and in the store."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import EMBEDDING_DIM, Embodiment, Pose, SceneNode, observation_id, unchecked
from engram.memory.storage.spatial_hash import Grid

LAYERS: Mapping[str, int] = {"building": 5, "room": 4, "place": 3, "object": 2, "agent": 2}
"""Layer name -> height, numbered as in spark_dsg (Hughes et al., Hydra)."""
LAYER_CODE = {name: code for code, name in enumerate(LAYERS)}
OBJECT, AGENT = LAYER_CODE["object"], LAYER_CODE["agent"]
STATES: tuple[str, ...] = ("visible", "occluded", "unseen", "absent")
VISIBLE, OCCLUDED, UNSEEN, ABSENT = range(4)
LARGE_M = 0.5
"""Boxes with a longer half diagonal (tables, rooms) are kept apart: they would be neighbours of everything."""

_NUMBERS = {  # name: (shape of a row, dtype)
    "position": ((3,), np.float64),
    "quaternion": ((4,), np.float64),
    "covariance": ((3, 3), np.float64),
    "size": ((3,), np.float64),
    "color": ((3,), np.float64),
    "belief": ((), np.float64),
    "embedding": ((EMBEDDING_DIM,), np.float32),
    "state": ((), np.int8),
    "layer": ((), np.int8),  # LAYER_CODE
    "first_ns": ((), np.int64),
    "last_ns": ((), np.int64),
    "sights": ((), np.int64),
    "half": ((3,), np.float64),  # axis-aligned half extents, follows from size and quaternion
}
ROW_BYTES = 2000 + sum(int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize for shape, dtype in _NUMBERS.values())
"""RAM of a node: its columns; 900 for words, votes and indexes (tracemalloc, 10,000 nodes); the rest for relations."""


@dataclass
class NodeText:
    """The text fields of a node."""

    id: str
    layer: str
    label: str
    frame: str
    first_camera: str  # that saw it first; empty = never seen
    last_camera: str
    votes: dict[str, float] = field(default_factory=dict)  # label -> sum of scores
    embodiment: Embodiment | None = None  # of an agent


def half_extents(quaternions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the axis-aligned half extents (n, 3) m of boxes (n, 4) wxyz, (n, 3) m."""
    turned = np.abs(Rotation.from_quat(quaternions, scalar_first=True).as_matrix())
    return np.einsum("nij,nj->ni", turned, sizes) / 2


class NodeColumns:
    """Growable columns; freed rows are used again, smallest first. Indexes by id, place, label and camera."""

    position: np.ndarray
    quaternion: np.ndarray
    covariance: np.ndarray
    size: np.ndarray
    color: np.ndarray
    belief: np.ndarray
    embedding: np.ndarray
    state: np.ndarray
    layer: np.ndarray
    first_ns: np.ndarray
    last_ns: np.ndarray
    sights: np.ndarray
    half: np.ndarray

    def __init__(self, capacity: int = 64) -> None:
        self.text: list[NodeText | None] = []
        self.row_of: dict[str, int] = {}
        self.grid = Grid()
        self.large: set[int] = set()
        self.large_objects: set[int] = set()
        self.fixed: set[int] = set()  # buildings, rooms and places
        self.agents: set[int] = set()
        self.by_label: dict[str, set[int]] = {}  # objects only
        self.in_view: dict[str, set[int]] = {}  # camera -> objects that it saw last and that count as in view
        self.changed: set[int] = set()  # since the last commit
        self.changed_embedding: set[int] = set()
        self.freed: set[int] = set()
        self._free: list[int] = []
        for name, (shape, dtype) in _NUMBERS.items():
            setattr(self, name, np.zeros((capacity, *shape), dtype))

    def __len__(self) -> int:
        """Return how many nodes there are."""
        return len(self.row_of)

    def __contains__(self, node_id: str) -> bool:
        """Whether there is a node of this id."""
        return node_id in self.row_of

    def about(self, row: int) -> NodeText:
        """Return the words of a row in use."""
        text = self.text[row]
        assert text is not None
        return text

    def agent_id(self, name: str) -> str | None:
        """Return the node id of the agent called ``name``."""
        texts = (self.about(row) for row in sorted(self.agents))
        return next((text.id for text in texts if text.label == name), None)

    def put(self, node: SceneNode, votes: Mapping[str, float] | None = None, row: int | None = None) -> int:
        """Add ``node`` or replace the one with its id; return its row."""
        if node.layer not in LAYERS:
            raise unknown_name("layer", node.layer, LAYERS)
        if node.state not in STATES:
            raise unknown_name("state", node.state, STATES)
        known = self.row_of.get(node.id)
        if known is not None:
            self._unindex(known)
            if votes is None:
                votes = self.about(known).votes
        row = known if known is not None else self._new_row(row)
        if known is None or not np.array_equal(self.embedding[row], node.embedding):
            self.embedding[row] = node.embedding
            self.changed_embedding.add(row)
        self.position[row], self.quaternion[row] = node.pose.position, node.pose.quaternion
        self.covariance[row], self.size[row], self.color[row] = node.position_covariance, node.size, node.color
        self.belief[row], self.state[row] = node.belief, STATES.index(node.state)
        self.first_ns[row], self.last_ns[row] = node.first_seen_ns, node.last_seen_ns
        self.sights[row], self.layer[row] = node.observations, LAYER_CODE[node.layer]
        self.half[row] = half_extents(self.quaternion[row][None], self.size[row][None])[0]
        cameras = (node.first_evidence.rpartition("@")[0], node.last_evidence.rpartition("@")[0])
        self.text[row] = NodeText(
            node.id, node.layer, node.label, node.pose.frame, *cameras, dict(votes or {}), node.embodiment
        )
        self.row_of[node.id] = row
        self._index(row)
        self.changed.add(row)
        return row

    def remove(self, node_id: str) -> None:
        """Forget a node; its row may be used again."""
        row = self.row_of.pop(node_id)
        self._unindex(row)
        self.text[row] = None
        self.embedding[row] = 0.0  # matches nothing
        self.changed.discard(row)
        self.changed_embedding.discard(row)
        self.freed.add(row)
        heapq.heappush(self._free, row)

    def node(self, row: int) -> SceneNode:
        """Return one row as a node."""
        return self.nodes([row])[0]

    def nodes(self, rows: Sequence[int] | np.ndarray) -> list[SceneNode]:
        """Return rows as nodes: snapshots, which later changes leave alone."""
        rows = np.asarray(rows, np.int64)
        arrays = [getattr(self, name)[rows] for name in ("position", "quaternion", "covariance", "size", "color")]
        arrays.append(self.embedding[rows])
        for array in arrays:
            array.flags.writeable = False  # rows need no copy on their way into a node
        self._check(rows, arrays)
        position, quaternion, covariance, size, color, embedding = arrays
        scalars = (self.belief[rows].tolist(), self.state[rows].tolist(), self.first_ns[rows].tolist())
        return [
            unchecked(
                SceneNode, text.id, text.layer, text.label,
                unchecked(Pose, position[i], quaternion[i], text.frame), covariance[i], size[i],
                color[i], embedding[i], belief, STATES[state], first, last, sights,
                observation_id(text.first_camera, first) if text.first_camera else "",
                observation_id(text.last_camera, last) if text.last_camera else "", text.embodiment,
            )
            for i, (text, belief, state, first, last, sights) in enumerate(
                zip([self.about(int(row)) for row in rows], *scalars, self.last_ns[rows].tolist(),
                    self.sights[rows].tolist(), strict=True)
            )
        ]  # fmt: skip

    def _check(self, rows: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Validate many rows as SceneNode and Pose do; on failure, validate one by one to name the wrong row."""
        sound = all(np.isfinite(array).all() for array in arrays)
        sound = sound and bool((np.abs(np.linalg.norm(arrays[1], axis=1) - 1.0) <= 1e-3).all())
        if not sound or not (np.abs(self.belief[rows] - 0.5) <= 0.5).all():
            for row in rows.tolist():
                Pose(self.position[row], self.quaternion[row])
                for name in ("covariance", "size", "color", "belief", "embedding"):
                    values = getattr(self, name)[row]
                    checked(f"node {self.about(row).id!r} {name}", values, np.shape(values), values.dtype)
            raise InvalidInputError(f"belief of nodes: {self.belief[rows].tolist()}, expected 0..1")

    def rows(self, *layers: str) -> np.ndarray:
        """Return the rows of ``layers`` (none given = all), in the order of their ids' first use."""
        rows = np.fromiter(self.row_of.values(), np.int64, len(self.row_of))
        if not layers:
            return rows
        return rows[np.isin(self.layer[rows], [LAYER_CODE[layer] for layer in layers])]

    def objects_within(self, low: np.ndarray, high: np.ndarray) -> set[int]:
        """Return objects whose centre may lie between ``low`` and ``high`` (x, y) m, and all large ones."""
        return self.grid.within(low, high) | self.large_objects

    # -- changes of many rows ------------------------------------------------------------------------------------

    def moved(self, rows: Iterable[int]) -> None:
        """Bring the indexes up to date after ``position``, ``size`` or ``quaternion`` of ``rows`` were written."""
        rows = np.fromiter(rows, np.int64)
        if not len(rows):
            return
        self.half[rows] = half_extents(self.quaternion[rows], self.size[rows])
        reach = np.linalg.norm(self.half[rows], axis=1)
        for row, (x, y, _), large in zip(rows.tolist(), self.position[rows].tolist(), reach > LARGE_M, strict=True):
            self._place(row, x, y, bool(large))
        self.changed.update(rows.tolist())

    def seen_by(self, row: int, camera: str) -> None:
        """Note that ``camera`` has ``row`` in view."""
        text = self.about(row)
        if text.last_camera != camera:
            self.in_view.get(text.last_camera, set()).discard(row)
            text.last_camera = camera
        self.in_view.setdefault(camera, set()).add(row)

    def out_of_view(self, row: int) -> None:
        """Note that no camera has ``row`` in view any more."""
        self.in_view.get(self.about(row).last_camera, set()).discard(row)

    def relabel(self, row: int, label: str) -> None:
        """Give ``row`` another label."""
        text = self.about(row)
        if text.label != label:
            self._forget_label(row, text)
            text.label = label
            if text.layer == "object":
                self.by_label.setdefault(label, set()).add(row)

    # -- the store -----------------------------------------------------------------------------------------------

    def bytes_used(self) -> int:
        """Return the RAM used by the columns [bytes], without the spare capacity."""
        return len(self.row_of) * ROW_BYTES

    def restore(self, rows: np.ndarray, texts: Sequence[NodeText], values: Mapping[str, np.ndarray]) -> None:
        """Restore stored nodes, oldest first, into empty columns: no change.

        ``values``: every column but ``half``, n rows each. Rows that no node came back for are free.
        """
        top = int(rows.max(initial=-1)) + 1
        for name, (shape, dtype) in _NUMBERS.items():
            grown = np.zeros((max(64, top), *shape), dtype)
            grown[rows] = values[name] if name != "half" else half_extents(values["quaternion"], values["size"])
            setattr(self, name, grown)
        self.text = [None] * top
        for row, text in zip(rows.tolist(), texts, strict=True):
            self.text[row] = text
        self.row_of = {text.id: row for row, text in zip(rows.tolist(), texts, strict=True)}
        free = np.ones(top, bool)
        free[rows] = False
        self._free = np.flatnonzero(free).tolist()
        reach = np.linalg.norm(self.half[rows], axis=1).tolist()
        for row, (x, y, _), far in zip(rows.tolist(), self.position[rows].tolist(), reach, strict=True):
            self._enter(row, x, y, far > LARGE_M)

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self.changed, self.changed_embedding, self.freed = set(), set(), set()

    # -- inside --------------------------------------------------------------------------------------------------

    def _new_row(self, wanted: int | None) -> int:
        if wanted is not None:
            row = wanted
        else:
            row = heapq.heappop(self._free) if self._free else len(self.text)
        self.freed.discard(row)
        while len(self.text) <= row:
            self.text.append(None)
        if row >= len(self.belief):
            for name, (shape, dtype) in _NUMBERS.items():
                old = getattr(self, name)
                grown = np.zeros((max(2 * len(old), row + 1), *shape), dtype)
                grown[: len(old)] = old
                setattr(self, name, grown)
        return row

    def _index(self, row: int) -> None:
        x, y, _ = self.position[row].tolist()
        self._enter(row, x, y, float(np.linalg.norm(self.half[row])) > LARGE_M)

    def _enter(self, row: int, x: float, y: float, large: bool) -> None:
        """Add ``row`` at (x, y) m to every index."""
        text = self.about(row)
        if text.layer == "object":
            self.by_label.setdefault(text.label, set()).add(row)
        if text.layer == "object" and self.state[row] in (VISIBLE, OCCLUDED) and text.last_camera:
            self.in_view.setdefault(text.last_camera, set()).add(row)
        if text.layer == "agent":
            self.agents.add(row)
        elif text.layer != "object":
            self.fixed.add(row)
        self._place(row, x, y, large)

    def _place(self, row: int, x: float, y: float, large: bool) -> None:
        if large or self.about(row).layer not in ("object", "place"):  # rooms by rule, whatever their size
            self.large.add(row)
            self.grid.remove(row)
            if self.about(row).layer == "object":
                self.large_objects.add(row)
        else:
            self.large.discard(row)
            self.large_objects.discard(row)
            self.grid.put(row, x, y)

    def _unindex(self, row: int) -> None:
        text = self.about(row)
        self._forget_label(row, text)
        self.in_view.get(text.last_camera, set()).discard(row)
        self.grid.remove(row)
        for rows in (self.large, self.large_objects, self.fixed, self.agents):
            rows.discard(row)

    def _forget_label(self, row: int, text: NodeText) -> None:
        rows = self.by_label.get(text.label)
        if rows is not None:
            rows.discard(row)
            if not rows:
                del self.by_label[text.label]
