"""Names of places in statistics: what carries an object, else a cell of half a metre."""

from __future__ import annotations

import numpy as np

_CELL_M = 0.5


def place_key(support_id: str, place: np.ndarray) -> str:
    """Return the name under which a place is counted: what carries the object, else a cell of half a metre."""
    if support_id:
        return support_id
    return "cell " + " ".join(str(int(np.floor(value / _CELL_M))) for value in place)
