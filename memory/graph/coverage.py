"""Where the robot has looked, and when: tells "looked and found nothing" from "never looked"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from engram.core.geometry import backproject, to_frame
from engram.core.types import SceneObservation
from engram.memory.storage.cells import CELL_M, SPAN, pack

CELL_BYTES = 400
"""RAM of a cell: three dictionaries; tracemalloc."""
GRAIN_NS = 10_000_000_000
"""A cell that is looked at again within this time is no news for the store."""
_AT_ONCE = 200_000
"""Up to so many pairs of box and cell."""


class Coverage:
    """Surfaces that a depth camera measured, as cells of 25 cm with the time of the newest look."""

    def __init__(self) -> None:
        self._looked: dict[int, int] = {}  # packed cell -> stamp
        self._written: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        self._arrays: tuple[np.ndarray, np.ndarray] | None = None  # of _looked, while it does not change
        self.forgotten: set[int] = set()  # cells that the store still has
        self.into: dict[str, int] = {}  # a hollow place -> stamp of the newest look at what is inside its box

    def add(self, scene: SceneObservation, near_m: float, far_m: float) -> None:
        """Take in every surface between these depths that ``scene`` measured."""
        height, width = scene.depth_grid.shape
        scale = np.array([[width / scene.image_size[0]], [height / scene.image_size[1]], [1.0]])
        points = backproject(scene.depth_grid.astype(np.float64), scene.intrinsics * scale)
        seen = (scene.depth_grid > max(0.0, near_m)) & (scene.depth_grid < far_m)
        self._arrays = None
        for key in np.unique(pack(to_frame(points[seen], scene.camera_pose))).tolist():
            if self._looked.get(key, -1) < scene.stamp_ns:
                self._looked[key] = scene.stamp_ns
                if scene.stamp_ns - self._written.get(key, -GRAIN_NS - 1) > GRAIN_NS:
                    self._pending[key] = scene.stamp_ns

    def look_into(self, places: Iterable[str], stamp_ns: int) -> None:
        """Note that the insides of ``places`` were seen; a frame that comes late undoes nothing."""
        for place in places:
            self.into[place] = max(stamp_ns, self.into.get(place, stamp_ns))

    def shift(self, by_ns: int) -> None:
        """Move the time of every look."""
        self._arrays = None
        self._looked = {cell: stamp + by_ns for cell, stamp in self._looked.items()}
        self.into = {place: stamp + by_ns for place, stamp in self.into.items()}
        self._pending = dict(self._looked)
        self._written = {}

    def last_look(self, low: np.ndarray, high: np.ndarray) -> int | None:
        """Return when a surface between ``low`` and ``high`` (3,) m was last seen; None = never."""
        first, last = (np.floor(np.asarray(one, np.float64) / CELL_M) for one in (low, high))
        if np.prod(last - first + 1) > len(self._looked):
            parts, when = self._as_arrays()
            inside = when[((parts >= first) & (parts <= last)).all(axis=1)]
            return int(inside.max()) if len(inside) else None
        cells = [np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]
        grid = np.stack(np.meshgrid(*cells, indexing="ij"), axis=-1).reshape(-1, 3)
        stamps = [self._looked[key] for key in pack((grid + 0.5) * CELL_M).tolist() if key in self._looked]
        return max(stamps, default=None)

    def last_looks(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return what :meth:`last_look` does for many boxes, ``low`` to ``high`` (n, 3) m, as stamps (n,); -1 = never.

        Few boxes and cells are compared all at once; else each box looks up its own cells.
        """
        if len(low) * len(self._looked) > _AT_ONCE:
            found = (self.last_look(a, b) for a, b in zip(low, high, strict=True))
            return np.array([-1 if stamp is None else stamp for stamp in found], np.int64)
        parts, when = self._as_arrays()
        first, last = np.floor(low / CELL_M)[:, None], np.floor(high / CELL_M)[:, None]
        inside = ((parts >= first) & (parts <= last)).all(axis=2)
        return np.where(inside, when, -1).max(axis=1, initial=-1)

    def _as_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the looked cells (n, 3) and their stamps (n,); built anew when something was looked at since."""
        if self._arrays is None:
            keys = np.fromiter(self._looked, np.int64, len(self._looked))
            parts = np.column_stack((keys // (SPAN * SPAN), keys // SPAN % SPAN, keys % SPAN)) - SPAN // 2
            self._arrays = parts, np.fromiter(self._looked.values(), np.int64, len(self._looked))
        return self._arrays

    def changes(self) -> dict[int, int]:
        """Return cells -> stamps that the store does not have yet, or has much older."""
        return dict(self._pending)

    def forget_changes(self) -> None:
        """What :meth:`changes` returned is durable."""
        self._written |= self._pending
        self._pending = {}
        self.forgotten = set()

    def restore(self, cells: Mapping[int, int]) -> None:
        """Restore stored cells -> stamps."""
        self._arrays = None
        self._looked = dict(cells)
        self._written = dict(cells)

    def bytes_used(self) -> int:
        """Return the RAM used by the cells [bytes], with their rows in the store."""
        return CELL_BYTES * len(self._looked)

    def shrink(self, budget: int) -> None:
        """Forget the oldest looks above ``budget`` bytes: what was seen long ago is as good as never seen."""
        self._arrays = None
        excess = len(self._looked) - budget // CELL_BYTES
        for cell in sorted(self._looked, key=self._looked.__getitem__)[: max(0, excess)]:
            del self._looked[cell]
            self._pending.pop(cell, None)
            if self._written.pop(cell, None) is not None:
                self.forgotten.add(cell)

    def __len__(self) -> int:
        """Return how many cells were looked at."""
        return len(self._looked)
