"""The kinds of questions that come with the memory. Importing this registers them."""

from engram.memory.query import at_time, attribute, capability, count, find_object, relation, unread

__all__ = ["at_time", "attribute", "capability", "count", "find_object", "relation", "unread"]
