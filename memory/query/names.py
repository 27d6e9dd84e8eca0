"""What the words of a question mean: labels and ids of the present and of the past."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from engram.core.errors import unknown_name
from engram.core.questions import Selection
from engram.memory.graph.tracker import Tracker
from engram.memory.storage.columns import NodeColumns
from engram.memory.storage.history import History

_FRUIT = "orange"
"""A colour that is the name of a thing, too: at the end of what is said it is the thing."""


def anchors(tracker: Tracker, name: str, then: Selection | None = None) -> list[str]:
    """Return the ids of the nodes that ``name`` means: an id, a label, or the labels that contain its words.

    With ``then``, a question about the past, what was called so at its time counts as well. Empty: there was such a
    thing once, but it is neither in the graph nor was it there at that time.

    Raises:
        UnknownNameError: there never was; lists what there is.
    """
    columns, history = tracker.columns, tracker.history
    if name in columns or (then is not None and name in tracker.removed):
        return [name]
    others: dict[str, set[int]] = {}  # buildings, rooms, places and agents
    for row in columns.fixed | columns.agents:
        others.setdefault(columns.about(row).label, set()).add(row)
    if name in ("robot", "hand") and columns.agents:
        return [columns.about(row).id for row in sorted(columns.agents)]
    for loosely in (False, True):
        known = (labels[label] for labels in (columns.by_label, others) for label in _meant(name, labels, loosely))
        ids = [columns.about(row).id for row in sorted(set().union(*known))]
        if then is not None:
            rows = history.select(then.valid_ns, then.believed_ns, rows=_facts_called(history, name, loosely))
            ids += sorted({history.words[number] for number in history.node[rows].tolist()})
        if ids:
            return list(dict.fromkeys(ids))
    if name not in tracker.removed and not len(_facts_called(history, name, True)):
        raise unknown_name("node or label", name, known_names(tracker))
    return []


def _meant(name: str, labels: Collection[str], loosely: bool) -> list[str]:
    """Return the label that is ``name``; with ``loosely`` those that contain its words, for which all are read."""
    if not loosely:
        return [name] if name in labels else []
    return [label for label in labels if names(name, label)]


def _facts_called(history: History, name: str, loosely: bool) -> np.ndarray:
    """Return the rows (n,) of all facts whose label ``name`` means."""
    if not loosely:
        number = history.number(name)
        return np.flatnonzero(history.used & (history.label == number)) if number >= 0 else np.zeros(0, np.int64)
    numbers = np.flatnonzero(np.bincount(history.label[history.used]))
    labels = {history.words[number]: number for number in numbers.tolist()}
    meant = [labels[label] for label in _meant(name, labels, loosely)]
    return np.flatnonzero(history.used & np.isin(history.label, meant))


def known_names(tracker: Tracker) -> set[str]:
    """Return every id and label in the graph."""
    columns = tracker.columns
    others = {columns.about(row).label for row in columns.fixed | columns.agents}
    return {*columns.by_label, *others, *columns.row_of}


def called(tracker: Tracker, text: str) -> list[int]:
    """Return the rows of the agents that are called ``text``; every robot is called robot."""
    columns, words = tracker.columns, text.replace("_", " ")
    if words in ("robot", "robots"):
        return sorted(columns.agents)
    return [row for row in sorted(columns.agents) if columns.about(row).label.lower().replace("_", " ") == words]


def names(words: str, label: str) -> bool:
    """Whether ``label`` has all of ``words``, as one says it: the label may be spelt "Coffee_Cup".

    "green cube" does not name the green button, even if the cube is gone; "orange" no orange cube.
    """
    wanted, said = _said(words), _said(label)
    return set(wanted) <= set(said) and (wanted[-1:] != [_FRUIT] or said[-1:] == [_FRUIT])


def which_named(words: str, labels: Sequence[str]) -> np.ndarray:
    """Tell (n,) bool which of ``labels`` :func:`names` says that ``words`` name."""
    first = max(_said(words), key=len, default="")  # a look for one word tells most labels without taking them apart
    return np.array([first in label.casefold() and names(words, label) for label in labels], bool)


def _said(label: str) -> list[str]:
    return label.casefold().replace("_", " ").split()


def is_known_label(columns: NodeColumns, history: History, text: str) -> bool:
    """Whether an object is or was called ``text``, or has a label that contains its words."""
    return any(names(text, label) for label in columns.by_label) or len(_facts_called(history, text, True)) > 0
