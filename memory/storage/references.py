"""Rows of tables that name rows of other tables: whether those are there."""

from __future__ import annotations

import json

import numpy as np

from engram.core.errors import DAMAGED, StoreError
from engram.memory.storage.fact_columns import WORDS
from engram.memory.storage.records import FACT_CODES
from engram.memory.storage.tables import Tables


def check_references(tables: Tables, name: str) -> None:
    """Check that every row which a node, a fact or a record names is there.

    Raises:
        StoreError: naming ``name``, the table, the row and what is missing.
    """
    nodes = np.flatnonzero(tables["nodes"]["time"][:, 3])
    _check(tables, name, "nodes", nodes, nodes, "embeddings")
    codes = tables["facts"]["code"]
    facts = np.flatnonzero(codes[:, FACT_CODES.index("used")])
    for column in WORDS:
        _check(tables, name, "facts", facts, codes[facts, FACT_CODES.index(column)], "words")
    texts = [str(text) for text in tables["records"]["text"][:, 0]]
    with_vector = [row for row, text in enumerate(texts) if text and _has_vector(text, f"{name}: row {row}")]
    records = np.array(with_vector, np.int64)
    _check(tables, name, "records", records, records, "vectors")


def _check(tables: Tables, name: str, table: str, rows: np.ndarray, named: np.ndarray, target: str) -> None:
    """Raise StoreError where one of ``rows`` (n,) of ``table`` names, in ``named`` (n,), no row of ``target``."""
    count = len(next(iter(tables[target].values())))
    bad = np.flatnonzero((named < 0) | (named >= count))
    if len(bad):
        row, missing = int(rows[bad[0]]), int(named[bad[0]])
        raise StoreError(
            f"{name}: row {row} of table {table!r} names row {missing} of table {target!r}, which has {count} rows"
        )


def _has_vector(text: str, where: str) -> bool:
    """Return whether the record ``text`` has a vector, which lies in the row of the same number."""
    try:
        _, _, _, has_vector = json.loads(text)
    except DAMAGED as error:
        raise StoreError(f"{where} of table 'records': {error!r}") from error
    return bool(has_vector)
