"""Stores of earlier versions, read as today's tables. One function a schema; the next commit writes today's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import zarr

from engram.core.types import observation_id
from engram.memory.storage.records import TABLES, strings

Migration = Callable[[zarr.Group, Mapping[str, Any]], tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]]


def _empty() -> dict[str, dict[str, np.ndarray]]:
    return {
        table: {
            name: np.empty((0, column.width), object if column.dtype == "string" else column.dtype)
            for name, column in columns.items()
        }
        for table, columns in TABLES.items()
    }


def from_graph_1(
    root: zarr.Group, attributes: Mapping[str, Any]
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """``engram.memory.graph`` 1: nodes alone. Their history begins with what they are."""
    columns = {name: np.asarray(root[name][:]) for name in ("number", "time", "embedding", "text")}  # type: ignore[index]
    texts = []
    for text, time in zip(columns["text"], columns["time"], strict=True):
        node_id, layer, label, state, frame = (str(value) for value in text)
        sights = {label: float(min(time[2], 10))}
        evidence = [observation_id("unknown", int(stamp)) if layer == "object" else "" for stamp in time[:2]]
        row = [node_id, layer, label, state, frame, *evidence, sights]
        texts.append(json.dumps(row, ensure_ascii=False) if time[3] else "")
    tables = _empty()
    tables["nodes"] = {"number": columns["number"], "time": columns["time"], "text": strings(texts)}
    tables["embeddings"] = {"embedding": columns["embedding"]}
    return tables, {"issued": attributes["issued"]}


MIGRATIONS: Mapping[tuple[str, int], Migration] = {("engram.memory.graph", 1): from_graph_1}
"""(schema name, version) -> how it is read."""
