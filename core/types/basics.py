"""What the value types share: how they are built without ``__init__``, and the sizes that they agree on."""

from __future__ import annotations

from typing import Any, Literal

ActionSpace = Literal["ee_delta", "joint_position"]
ACTION_SPACES: tuple[str, ...] = ("ee_delta", "joint_position")
EE_ACTION_DIM = 7
"""ee_delta: (dx, dy, dz, drx, dry, drz, gripper), each in [-1, 1]; scaled by :class:`ControlConfig`."""
EMBEDDING_DIM = 384
"""Text and object embeddings (MiniLM)."""


def set_fields(instance: object, **values: Any) -> None:
    """Set fields of a frozen ``instance``, in its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def unchecked[T](cls: type[T], *values: Any) -> T:
    """Return a ``cls`` with ``values`` for all its fields in their order, without its checks.

    For many objects made of rows that were checked together: one call of NumPy for all instead of six for each.
    """
    instance = object.__new__(cls)
    for name, value in zip(cls.__slots__, values, strict=True):  # type: ignore[attr-defined]
        object.__setattr__(instance, name, value)
    return instance
