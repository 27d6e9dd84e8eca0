"""The frame and map that all places of a memory belong to, and the transformation of a store into another map."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, StoreError
from engram.memory.storage.cells import REACH_M, cell_centres, pack
from engram.memory.storage.place_keys import place_key
from engram.memory.storage.records import strings
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import Stored


@dataclass(frozen=True)
class Anchor:
    """The frame and the map of all places of a memory."""

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
    if there == wanted:
        return
    way_out = "carry it over with `engram memory reanchor --map`"
    if there.frame != wanted.frame:  # a fixed transform leads into another map, not into another frame
        way_out = f"start memory_node with frame:={there.frame!r} map:={there.map!r}"
    raise StoreError(
        f"the memory's places are in frame {there.frame!r} of map {there.map!r}, not in {wanted.frame!r} of "
        f"{wanted.map!r}: name another store, or {way_out}"
    )


def reanchored(stored: Stored, transform: PlaneTransform, map_name: str) -> Stored:
    """Return ``stored`` with every place, of all four stores, carried into the map ``map_name``.

    ``transform`` maps points of the old map into the new one. Every table keeps its length: written over the old one,
    it leaves nothing of it.

    Raises:
        InvalidInputError: ``stored`` is in map ``map_name`` already, or the shift is longer than the memory reaches.
    """
    if anchor_of(stored).map == map_name:
        raise InvalidInputError(
            f"the memory is in map {map_name!r} already: a map whose origin was moved needs a new name or version"
        )
    if (far := float(np.abs(transform.shift).max())) > REACH_M:
        raise InvalidInputError(f"transform: a shift of {far:g} m, expected at most {REACH_M:g} m along each axis")
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
    about = {**stored.about, "anchor": {"frame": anchor_of(stored).frame, "map": map_name}}
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
    """Return rows (n, 2), one a cell, that of the newest look: two may fall into one. Those left over are blank."""
    used = cells[cells[:, 0] != 0]
    ordered = used[np.lexsort((-used[:, 1], used[:, 0]))]
    kept = ordered[np.unique(ordered[:, 0], return_index=True)[1]]
    return np.concatenate((kept, np.zeros((len(cells) - len(kept), 2), cells.dtype)))


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
        if "key" in out:  # a stay
            out["key"] = _place_key(out["key"], out["place"])
    if "places" in out:  # habits
        out["places"] = _usual_places(out["places"], carried)
    for name in ("kept", "gone"):  # the nodes of a merge
        if name in out:
            number = _numbers(np.array([out[name]["number"]]), transform)[0].tolist()
            out[name] = {**out[name], "number": number}
    return out


def _usual_places(
    places: Mapping[str, list[Any]], carried: Callable[[list[float]], list[float]]
) -> Mapping[str, list[Any]]:
    """Carry usual places, key -> (label, visits, seconds, x, y, z); those that fall into one cell become one."""
    out: dict[str, list[Any]] = {}
    for old, (label, visits, seconds, *place) in places.items():
        mean = np.array(carried(place))
        key = _place_key(old, mean)
        if key in out:
            _, more, longer, *other = out[key]
            mean = (visits * mean + more * np.array(other)) / (visits + more)
            visits, seconds = visits + more, seconds + longer
        out[key] = [label, visits, seconds, *mean.tolist()]
    return out


def _place_key(key: str, place: Sequence[float] | np.ndarray) -> str:
    """Return what a place counted as ``key`` is counted as once it is ``place`` (3,) m: nodes keep their ids."""
    return place_key("", np.asarray(place)) if key.startswith("cell ") else key
