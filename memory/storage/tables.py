"""Columns of a table in zarr: written by the rows that changed, read whole, hashed row by row."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from engram.core.errors import StoreError
from engram.memory.storage.records import TABLES, Column, Rows, row_hashes, strings

_MANY_CHUNKS = 512
"""A table that is written whole (import, repair) gets larger chunks rather than more: reading costs by the chunk."""

Tables = Mapping[str, Mapping[str, np.ndarray]]


def read_column(root: zarr.Group, table: str, name: str, column: Column) -> np.ndarray:
    """Return a column (n, width); one that was never written has no rows."""
    key = f"{table}/{name}"
    if key not in root:
        return np.empty((0, column.width), object if column.dtype == "string" else column.dtype)
    values = np.asarray(array_at(root, key)[:])
    if column.dtype == "string":  # Python's strings: see _write_texts
        return strings([str(text) for text in values[:, 0].tolist()])
    return values


def array_at(root: zarr.Group, key: str) -> zarr.Array:
    array = root[key]
    if not isinstance(array, zarr.Array):
        raise StoreError(f"column {key!r}: a group, expected an array")
    return array


def write_rows(root: zarr.Group, table: str, rows: Rows, hashes: dict[tuple[str, str], np.ndarray]) -> None:
    """Write ``rows`` of one table; those that a column holds already are left alone, chunk and all."""
    if not len(rows.index):
        return
    order = np.argsort(rows.index, kind="stable")
    index = rows.index[order]
    for name, column in TABLES[table].items():
        key = f"{table}/{name}"
        if key not in root:
            codecs = [ZstdCodec(level=1), Crc32cCodec()]  # the checksum finds flipped bits when a chunk is read
            chunk = column.chunk << max(0, (len(index) // (column.chunk * _MANY_CHUNKS)).bit_length())
            shape, chunks = (0, column.width), (chunk, column.width)
            root.create_array(key, shape=shape, chunks=chunks, dtype=column.dtype, compressors=codecs)
        array = array_at(root, key)
        known = _grown(hashes.get((table, name), np.zeros(0, np.uint64)), int(index[-1]) + 1, column)
        if array.shape[0] < len(known):
            array.resize((len(known), column.width))
        values = rows.values[name][order]
        if column.dtype != "string":
            values = values.astype(array.dtype)
        fresh = row_hashes(index, values)
        news = known[index] != fresh
        if news.any():
            (_write_texts if column.dtype == "string" else _write_numbers)(array, index[news], values[news])
        known[index] = fresh
        hashes[table, name] = known


def _grown(hashes: np.ndarray, length: int, column: Column) -> np.ndarray:
    """Return a copy for at least ``length`` rows (the old ones count until the commit is done): new rows are blank."""
    blanks = length - len(hashes)
    if blanks <= 0:
        return hashes.copy()
    text = column.dtype == "string"
    blank = np.full((blanks, column.width), "", object) if text else np.zeros((blanks, column.width), column.dtype)
    return np.concatenate((hashes, row_hashes(np.arange(len(hashes), length), blank)))


def _write_numbers(array: zarr.Array, index: np.ndarray, values: np.ndarray) -> None:
    if len(index) == index[-1] - index[0] + 1:
        array[int(index[0]) : int(index[-1]) + 1] = values
    else:
        array.oindex[index] = values


def _write_texts(array: zarr.Array, index: np.ndarray, values: np.ndarray) -> None:
    """Write whole chunks of new strings.

    zarr would assign into the chunk that it read, and NumPy's StringDType spoils neighbours of a string of 255 bytes
    that takes another one's place (numpy issue 29261, not mended in 2.2).
    """
    size = array.chunks[0]
    chunks = np.unique(index // size)
    for run in np.split(chunks, np.flatnonzero(np.diff(chunks) > 1) + 1):
        begin, end = int(run[0]) * size, min((int(run[-1]) + 1) * size, array.shape[0])
        texts = np.array([str(text) for text in np.asarray(array[begin:end])[:, 0]], object)
        inside = (index >= begin) & (index < end)
        texts[index[inside] - begin] = values[inside, 0]
        array[begin:end] = texts.reshape(-1, 1)


def whole(tables: Tables, writes: Mapping[str, Rows] = MappingProxyType({})) -> dict[str, Rows]:
    """Return writes that put down all of ``tables`` with ``writes`` over them."""
    merged = {}
    for table, columns in TABLES.items():
        over = writes.get(table)
        length = len(next(iter(tables[table].values())))
        if over and len(over.index):
            length = max(length, int(over.index.max()) + 1)
        values = {}
        for name, column in columns.items():
            blank: Any = "" if column.dtype == "string" else 0
            rows = np.full((length, column.width), blank, object if column.dtype == "string" else column.dtype)
            rows[: len(tables[table][name])] = tables[table][name]
            if over and len(over.index):
                rows[over.index] = over.values[name]
            values[name] = rows
        merged[table] = Rows(np.arange(length), values)
    return merged


def hash_all(values: np.ndarray) -> np.ndarray:
    parts = [row_hashes(np.arange(i, min(i + 65536, len(values))), values[i : i + 65536])
             for i in range(0, len(values), 65536)]  # fmt: skip
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def digest(hashes: np.ndarray) -> str:
    return f"{int(hashes.sum(dtype=np.uint64)):016x}"
