"""Episodes made up for the learner's tests."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
from safetensors.numpy import load, save

from engram.core.types import ActionSource, Lineage, MemoryTokens, Transition
from engram.learning.experience import codec

LINEAGE = Lineage("r" * 64, "a" * 64, "n" * 64, "base")
OTHER = Lineage("s" * 64, "a" * 64, "n" * 64, "spatial")
"""Another checkpoint of the same network: its weights fit."""
OWN = ActionSource("base", LINEAGE.id)


def episode(
    number: int,
    steps: int = 4,
    *,
    first: int | None = None,
    robot: str = "panda",
    boot: str = "boot",
    task: str = "reach",
    success: bool = True,
    truncated: bool = False,
    finished: bool = True,
    image_size: int = 8,
    source: ActionSource = OWN,
) -> list[Transition]:
    """Return the ``steps`` transitions of episode ``number``; ``first`` sequence as if all before were as long."""
    first = number * steps + 1 if first is None else first
    rng = np.random.default_rng(number)
    out = []
    for step in range(steps):
        last = finished and step == steps - 1
        action = np.tanh(rng.normal(size=7)).astype(np.float32)
        out.append(
            Transition(
                robot_id=robot,
                boot_id=boot,
                sequence=first + step,
                episode=number,
                step=step,
                stamp_ns=(number * 1000 + step) * 100_000_000,
                task=task,
                instruction=f"{task} the red mark",
                images={"front": rng.integers(0, 256, (image_size, image_size, 3), np.uint8)},
                state=rng.normal(size=15).astype(np.float32),
                action=action,
                executed_action=action * np.float32(0.5),
                reward=float(last and success),
                reward_source="oracle",
                terminated=last and not truncated,
                truncated=last and truncated,
                success=last and success,
                author="human:ann" * (step % 2),
                policy_version="base",
                memory_ids=("object_0001", ""),
                source=source,
            )
        )
    return out


def assert_same[T: (Transition, MemoryTokens)](first: T, second: T) -> None:
    """Every field of both is the same, bit for bit."""
    for field in fields(type(first)):
        mine, theirs = getattr(first, field.name), getattr(second, field.name)
        if field.name == "images":
            assert list(mine) == list(theirs)
            for name in mine:
                assert mine[name].dtype == theirs[name].dtype == np.uint8
                np.testing.assert_array_equal(mine[name], theirs[name])
        elif isinstance(mine, MemoryTokens):
            assert_same(mine, theirs)
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert mine == theirs, field.name


def encode_version_1(transition: Transition) -> bytes:
    """Return ``transition`` as it was encoded before transitions had a source, or an author with a name."""
    block = bytes(codec._codec.decode(codec.encode(transition)))
    header = json.loads(block[8 : 8 + int.from_bytes(block[:8], "little")])
    values = json.loads(header["__metadata__"]["transition"])
    values["intervention"] = transition.intervention
    del values["source"], values["author"], values["chunk_ns"]
    return codec._codec.encode(save(load(block), metadata={"transition": json.dumps(values)}))
