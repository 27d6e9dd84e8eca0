"""Which rows lie near a place: a hash grid over x and y, exact to update one row at a time."""

from __future__ import annotations

import itertools

import numpy as np

Cell = tuple[int, int]


class Grid:
    """Rows by cells of ``cell_m``; the cost of a query depends on the rows in its cells alone."""

    def __init__(self, cell_m: float = 0.5) -> None:
        self.cell_m = cell_m
        self._rows: dict[Cell, set[int]] = {}
        self._cell_of: dict[int, Cell] = {}

    def put(self, row: int, x: float, y: float) -> None:
        """Add ``row`` at (x, y) m or move it there."""
        cell = (int(x // self.cell_m), int(y // self.cell_m))
        before = self._cell_of.get(row)
        if before == cell:
            return
        if before is not None:
            self._drop(row, before)
        self._cell_of[row] = cell
        self._rows.setdefault(cell, set()).add(row)

    def remove(self, row: int) -> None:
        """Forget ``row``; one that is not there is no error."""
        cell = self._cell_of.pop(row, None)
        if cell is not None:
            self._drop(row, cell)

    def _drop(self, row: int, cell: Cell) -> None:
        rows = self._rows[cell]
        rows.discard(row)
        if not rows:
            del self._rows[cell]

    def within(self, low: np.ndarray, high: np.ndarray) -> set[int]:
        """Return the rows of all cells that touch the rectangle from ``low`` to ``high``, (2,) or longer, m."""
        (x0, x1), (y0, y1) = ((int(low[i] // self.cell_m), int(high[i] // self.cell_m)) for i in (0, 1))
        if (x1 - x0 + 1) * (y1 - y0 + 1) > len(self._rows):  # a rectangle of mostly empty cells
            cells = [c for c in self._rows if x0 <= c[0] <= x1 and y0 <= c[1] <= y1]
        else:
            cells = [c for c in itertools.product(range(x0, x1 + 1), range(y0, y1 + 1)) if c in self._rows]
        return set().union(*(self._rows[cell] for cell in cells))
