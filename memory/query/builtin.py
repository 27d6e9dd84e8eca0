"""The kinds of questions that come with the memory. Importing this registers them."""

from engram.memory.query import (
    at_time,
    attribute,
    capability,
    changes,
    count,
    during_task,
    find_object,
    relation,
    tasks,
    unread,
)

__all__ = [
    "at_time",
    "attribute",
    "capability",
    "changes",
    "count",
    "during_task",
    "find_object",
    "relation",
    "tasks",
    "unread",
]
