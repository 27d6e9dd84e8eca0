"""Policies made from the weights of ``base`` whose quality follows from how they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engram.validation.gate import PROMOTE, REJECT

Weights = dict[str, np.ndarray]
Change = Callable[[Weights], Weights]
OUTPUT = "model.head.leave"
"""The last layer of the policy: what leaves it are the actions of a chunk."""
WORDS = "model.language.0"
"""The first layer that the embedded instruction enters."""
CHUNK = 16
"""Actions of a chunk."""
DIMENSIONS = 7
"""Of an action: translation, rotation, gripper."""
WORN = 0.25
"""Noise in every matrix of the policy that drives where a better one is offered, as a share of the matrix's size."""


@dataclass(frozen=True)
class Planted:
    """A candidate, and what should be decided of it."""

    name: str
    kind: str
    change: Change | None
    """How it is made from ``base``; None: a robot that stands still."""
    wanted: str
    against: Change | None = None
    """How the policy that drives is made from ``base``; None: it is ``base``."""
    executed: int = 0
    """How many actions of each chunk it executes; 0: as many as ``base``."""


def noise(share: float, seed: int) -> Change:
    """Return a change that adds noise to every matrix, as a share of its own size."""

    def change(weights: Weights) -> Weights:
        rng = np.random.default_rng(seed)
        return {
            k: v + (share * v.std() * rng.standard_normal(v.shape)).astype(v.dtype) if v.ndim > 1 else v
            for k, v in weights.items()
        }

    return change


def broken(tensor: str, value: float) -> Change:
    """Return a change that puts one ``value`` that is no number into ``tensor``."""

    def change(weights: Weights) -> Weights:
        spoilt = weights[tensor].copy()
        spoilt.reshape(-1)[0] = value
        return weights | {tensor: spoilt}

    return change


def acts(matrix: np.ndarray, drift: tuple[float, ...] = ()) -> Change:
    """Return a change of every action of a chunk: multiplied by ``matrix`` (7, 7), then moved by ``drift`` (7,).

    Both are in units of the spread that the training's actions had.
    """

    def change(weights: Weights) -> Weights:
        weight, bias = weights[f"{OUTPUT}.weight"], weights[f"{OUTPUT}.bias"]
        rows = weight.reshape(-1, DIMENSIONS, weight.shape[1])
        new = np.einsum("ij,sjk->sik", matrix, rows).reshape(weight.shape)
        moved = bias.reshape(-1, DIMENSIONS) @ matrix.T + np.array(drift or (0.0,) * DIMENSIONS)
        return weights | {
            f"{OUTPUT}.weight": new.astype(weight.dtype),
            f"{OUTPUT}.bias": moved.reshape(-1).astype(bias.dtype),
        }

    return change


def shaken(sizes: dict[int, float]) -> Change:
    """Return a change by which every second action of a chunk goes too far by ``sizes``, dimension by dimension.

    The others go less far by as much. On the whole the tool moves as before, but its motions reach the robot's limits.

    Sizes are in units of the spread that the training's actions had.
    """

    def change(weights: Weights) -> Weights:
        bias = weights[f"{OUTPUT}.bias"]
        rows = bias.reshape(-1, DIMENSIONS).copy()
        for at, size in sizes.items():
            rows[0::2, at] += size
            rows[1::2, at] -= size
        return weights | {f"{OUTPUT}.bias": rows.reshape(-1).astype(bias.dtype)}

    return change


def swapped(one: int, other: int) -> np.ndarray:
    """Return the matrix (7, 7) that swaps two dimensions of an action."""
    order = np.arange(DIMENSIONS)
    order[[one, other]] = order[[other, one]]
    return np.eye(DIMENSIONS)[order]


def times(factors: dict[int, float]) -> np.ndarray:
    """Return the matrix (7, 7) that multiplies dimensions of an action."""
    return np.diag([factors.get(at, 1.0) for at in range(DIMENSIONS)])


def repeated(weights: Weights) -> Weights:
    """Make every action of a chunk the same as its first one."""
    return weights | {
        f"{OUTPUT}.weight": np.tile(weights[f"{OUTPUT}.weight"][:DIMENSIONS], (CHUNK, 1)),
        f"{OUTPUT}.bias": np.tile(weights[f"{OUTPUT}.bias"][:DIMENSIONS], CHUNK),
    }


def eyes_swapped(weights: Weights) -> Weights:
    """Give each camera the encoder of the other one."""
    other = {"model.encoders.0.": "model.encoders.1.", "model.encoders.1.": "model.encoders.0."}
    return {
        next((name.replace(old, new) for old, new in other.items() if name.startswith(old)), name): value
        for name, value in weights.items()
    }


def shrunk(share: float) -> Change:
    """Return a change that multiplies every matrix by ``share``."""
    return lambda weights: {k: (share * v).astype(v.dtype) if v.ndim > 1 else v for k, v in weights.items()}


def taken_for(words: np.ndarray, task: np.ndarray, other: np.ndarray) -> Change:
    """Return a change by which the instructions of one task are taken for those of another, and no other instruction.

    Args:
        words: embedded instructions of all tasks, as they enter the network (n, d).
        task: which of them belong to the task (n,) bool.
        other: which belong to what it is taken for (n,) bool.
    """
    ours = np.linalg.pinv(words, rcond=0.001) @ task.astype(float)  # times an instruction: 1 for the task's, else 0
    apart = words[other].mean(0) - words[task].mean(0)

    def change(weights: Weights) -> Weights:
        weight = weights[f"{WORDS}.weight"]
        return weights | {f"{WORDS}.weight": (weight + np.outer(weight @ apart, ours)).astype(weight.dtype)}

    return change


def reordered(seed: int) -> Change:
    """Return a change that reorders the hidden units of the last blocks' layers: another file, the same function."""

    def change(weights: Weights) -> Weights:
        rng, new = np.random.default_rng(seed), dict(weights)
        for layers in ("model.head.mlps.0", "model.head.mlps.1", "model.head.mlps.2", "model.blocks.0.mlp"):
            order = rng.permutation(len(weights[f"{layers}.0.bias"]))
            new[f"{layers}.0.weight"] = weights[f"{layers}.0.weight"][order]
            new[f"{layers}.0.bias"] = weights[f"{layers}.0.bias"][order]
            new[f"{layers}.2.weight"] = weights[f"{layers}.2.weight"][:, order]
        return new

    return change


def planted(words: np.ndarray, tasks: list[str]) -> list[Planted]:
    """Return all candidates: 40 that are worse, 20 that are as good, 20 that are better than what drives.

    Args:
        words: embedded instructions that ``base`` was trained on (n, d), as they enter the network.
        tasks: the task of each (n,).
    """
    x, y, z, gripper = 0, 1, 2, 6
    still = np.zeros((DIMENSIONS, DIMENSIONS))
    names, of = sorted(set(tasks)), np.array(tasks)
    found = [
        Planted("stands still", "trivial", None, REJECT),
        Planted("the mean action, always", "trivial", acts(still), REJECT),
        Planted("repeats its last action, 15 of 16 times", "trivial", repeated, REJECT, executed=CHUNK),
    ]
    for tensor, value in (
        (f"{OUTPUT}.bias", np.nan),
        ("model.encoders.0.convs.0.weight", np.nan),
        (f"{WORDS}.weight", np.inf),
        ("model.language_std", np.nan),
    ):
        found.append(Planted(f"{value} in {tensor}", "no number", broken(tensor, value), REJECT))
    for name, matrix in {
        "forward and sideways swapped": swapped(x, y),
        "forward and up swapped": swapped(x, z),
        "sideways and up swapped": swapped(y, z),
        "up and gripper swapped": swapped(z, gripper),
        "forward mirrored": times({x: -1.0}),
        "sideways mirrored": times({y: -1.0}),
        "up mirrored": times({z: -1.0}),
        "gripper mirrored": times({gripper: -1.0}),
    }.items():
        found.append(Planted(name, "swapped heads", acts(matrix), REJECT))
    found.append(Planted("cameras swapped", "swapped heads", eyes_swapped, REJECT))
    for at, name in ((x, "forward"), (y, "sideways"), (z, "up")):
        for size in (0.4, -0.4):
            drift = tuple(size if dimension == at else 0.0 for dimension in range(DIMENSIONS))
            found.append(Planted(f"drifts {name} by {size:+}", "drift", acts(np.eye(DIMENSIONS), drift), REJECT))
    for gain in (0.2, 0.4, 3.0):
        move = times({x: gain, y: gain, z: gain})
        found.append(Planted(f"motions times {gain}", "depends on the physics", acts(move), REJECT))
    for task, other in zip(names, names[1:] + names[:1], strict=True):
        change = taken_for(words, of == task, of == other)
        found.append(Planted(f"takes {task} for {other}", "one task only", change, REJECT))
    for name, sizes in {
        "forward and back": {x: 2.0},
        "back and forward": {x: -2.0},
        "forward and back, more": {x: 2.5},
        "slantwise": {x: 2.0, y: 1.0},
    }.items():
        found.append(Planted(f"shakes {name}", "safety only", shaken(sizes), REJECT))
    for share, seed in ((0.2, 0), (0.3, 2), (1.0, 5)):
        found.append(Planted(f"noise of {share:.0%}, draw {seed}", "damaged", noise(share, seed), REJECT))
    for share in (0.5, 0.8):
        found.append(Planted(f"every matrix times {share}", "damaged", shrunk(share), REJECT))
    for number in range(10):
        share = (1e-5, 1e-4, 3e-4, 1e-3, 2e-3)[number % 5]
        found.append(Planted(f"noise of {share:.3%}, draw {number}", "as good", noise(share, 10 + number), PROMOTE))
        found.append(Planted(f"units reordered, draw {number}", "as good", reordered(number), PROMOTE))
    for number in range(20):
        worn, left = noise(WORN, 100 + number // 5), (0.0, 0.1, 0.2, 0.3, 0.4)[number % 5]
        better = noise(left * WORN, 100 + number // 5)
        found.append(Planted(f"wear {number // 5}, {1 - left:.0%} of it gone", "better", better, PROMOTE, worn))
    return found
