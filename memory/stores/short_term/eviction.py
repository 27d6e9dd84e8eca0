"""Which keys a bounded memory holds: the contract of the ways in :mod:`.eviction_policies`.

A key is *written* when its object changed and *read* when a query asks for it, held or not. Only writes bring a key
in: this is a memory of recent changes, and what it lacks is answered by the scene graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engram.core.arrays import positive_int


@dataclass(frozen=True, slots=True)
class Write:
    """A change that is offered for storage."""

    key: str
    label: str = ""  # class of the object
    absent: bool = False  # the change says that it is gone


class EvictionPolicy(ABC):
    """Decides which keys stay; holds at most ``capacity`` after every call."""

    def __init__(self, capacity: int) -> None:
        self.capacity = positive_int("capacity", capacity)

    @abstractmethod
    def write(self, write: Write) -> tuple[str, ...]:
        """Offer a change; return the evicted keys, which is ``write.key`` itself if it is not stored."""

    @abstractmethod
    def read(self, key: str, label: str = "") -> None:
        """Learn that a query asked for ``key``, whether it is held or not."""

    @abstractmethod
    def forget(self, key: str) -> None:
        """Remove ``key``: its object does not exist any more. Unknown keys are ignored."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return all that it learnt as JSON values; "keys" are those that are held, the next victim first."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on, bit for bit, from what :meth:`state` of a policy of the same kind and capacity gave."""

    def keys(self) -> tuple[str, ...]:
        """Return the keys that are held, the next victim first."""
        return tuple(self.state()["keys"])
