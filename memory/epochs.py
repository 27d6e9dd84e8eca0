"""Map epochs: every place of a memory is a place in one frame of one map, and can be carried over into another map."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import StoreError
from engram.memory.coverage import cell_centres, pack
from engram.memory.plane import PlaneTransform
from engram.memory.records import strings
from engram.memory.store import Stored


@dataclass(frozen=True)
class Anchor:
    """What the numbers of a place mean."""

    frame: str = "base_link"  # of every pose
    map: str = ""  # name and version of the map; empty = there is but one


def anchor_of(stored: Stored) -> Anchor:
    """Return the anchor of a snapshot; one that does not say is in the frame of its nodes."""
    if "anchor" in stored.about:
        return Anchor(**stored.about["anchor"])
    texts = (text for text in stored.tables["nodes"]["text"][:, 0] if text)
    return Anchor(next((json.loads(text)[4] for text in texts), "base_link"))


def check_anchor(stored: Stored, wanted: Anchor) -> None:
    """Raise StoreError when the places of ``stored`` are not places of ``wanted``."""
    there = anchor_of(stored)
    if there != wanted:
        raise StoreError(
            f"the memory's places are in frame {there.frame!r} of map {there.map!r}, not in {wanted.frame!r} of "
            f"{wanted.map!r}: name another store, or carry it over with `engram memory reanchor --map`"
        )


def reanchored(stored: Stored, transform: PlaneTransform, map_name: str) -> Stored:
    """Return ``stored`` with every place, of all four stores, carried into the map ``map_name``.

    ``transform`` maps points of the old map into the new one.
    """
    tables = {table: dict(columns) for table, columns in stored.tables.items()}
    used = tables["nodes"]["time"][:, 3] != 0
    number = tables["nodes"]["number"].copy()
    number[used] = _numbers(number[used], transform)
    tables["nodes"]["number"] = number
    tables["facts"]["place"] = transform.apply(tables["facts"]["place"].astype(np.float64)).astype(np.float32)
    cells = tables["looked"]["cell"].copy()
    looked = cells[:, 0] != 0
    cells[looked, 0] = pack(transform.apply(cell_centres(cells[looked, 0])))
    tables["looked"]["cell"] = _newest(cells)
    tables["records"]["text"] = strings([_record(text, transform) for text in tables["records"]["text"][:, 0]])
    about = {**stored.about, "anchor": {"frame": anchor_of(stored).frame, "map": map_name}, "grips": {}}
    return Stored(tables, stored.sequence + 1, stored.stamp_ns, about)


def _numbers(number: np.ndarray, transform: PlaneTransform) -> np.ndarray:
    """Carry rows (n, 23) of nodes: position, quaternion and covariance."""
    turn = Rotation.from_euler("z", transform.yaw)
    matrix, carried = turn.as_matrix(), number.copy()
    carried[:, 0:3] = transform.apply(number[:, 0:3])
    if len(number):
        turned = turn * Rotation.from_quat(number[:, 3:7], scalar_first=True)
        carried[:, 3:7] = turned.as_quat(canonical=True, scalar_first=True)
    carried[:, 7:16] = (matrix @ number[:, 7:16].reshape(-1, 3, 3) @ matrix.T).reshape(-1, 9)
    return carried


def _newest(cells: np.ndarray) -> np.ndarray:
    """Return the rows (n, 2) with one row a cell, that of the newest look: two may fall into one."""
    ordered = cells[np.lexsort((-cells[:, 1], cells[:, 0]))]
    return ordered[np.unique(ordered[:, 0], return_index=True)[1]]


def _record(text: str, transform: PlaneTransform) -> str:
    """Carry every place that a record of another store holds."""
    if not text:
        return text
    store, key, data, has_vector = json.loads(text)

    def carried(place: list[float]) -> list[float]:
        return transform.apply(np.array(place)).tolist()

    return json.dumps([store, key, _data(data, carried, transform), has_vector])


def _data(
    data: Mapping[str, Any], carried: Callable[[list[float]], list[float]], transform: PlaneTransform
) -> Mapping[str, Any]:
    out = dict(data)
    if "place" in out:  # a change, an event, a stay
        out["place"] = carried(out["place"])
    if "places" in out:  # usual places of habits: label, visits, seconds, x, y, z
        out["places"] = {key: [*row[:3], *carried(row[3:6])] for key, row in out["places"].items()}
    for name in ("kept", "gone"):  # the nodes of a merge
        if name in out:
            number = _numbers(np.array([out[name]["number"]]), transform)[0].tolist()
            out[name] = {**out[name], "number": number}
    return out
