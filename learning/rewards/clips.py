"""Clips of a reached goal: its recorded steps shown again in another way, so that progress is more than time.

Reached goals of a task take about as long, so the time alone tells how far each step has come. In a clip it does not,
as in ReWiND (Zhang et al. 2025, arXiv:2505.10911): the goal goes forwards and then backwards, or comes to a stand, or
is carried out under the words of another goal. No clip has to be recorded, and nobody has to judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from engram.core.errors import InvalidInputError
from engram.learning.replay.buffer import Episode
from engram.learning.rewards.success_classifier import Clip, colours_of, form_of
from engram.policies.lerobot.processor_engram_vla import embed_instructions

Encode = Callable[[Episode], np.ndarray]
"""What a policy makes of the steps of an episode (n, c) float32, each after those before it."""


@dataclass(frozen=True)
class ClipsConfig:
    """How many clips each reached goal gets.

    Raises:
        InvalidInputError: fewer than none.
    """

    of_time: int = 1
    """Of each of three kinds in which time does not tell the progress: rewound, standing still after it has gone on,
    and standing still from the first."""
    of_words: int = 0
    """Under the words of another goal, as far as there are such."""

    def __post_init__(self) -> None:
        for name, count in vars(self).items():
            if count < 0:
                raise InvalidInputError(f"ClipsConfig.{name}: {count}, expected 0 or more")


def clips_of(
    episode: Episode, encode: Encode, config: ClipsConfig, words: Collection[str], rng: np.random.Generator
) -> tuple[Clip, ...]:
    """Return the clips of a reached goal; none of one that took a single step.

    Args:
        episode: all steps of the goal.
        encode: encodes a clip anew: a policy with a memory of its episode makes of a step what comes before it, too.
        config: how many.
        words: of the goals that were judged.
        rng: draws where a clip turns or comes to a stand, for how long, and what is said.
    """
    return tuple(_clips_of(episode, encode, config, words, rng)) if len(episode) > 1 else ()


def _clips_of(
    episode: Episode, encode: Encode, config: ClipsConfig, words: Collection[str], rng: np.random.Generator
) -> Iterator[Clip]:
    for _ in range(config.of_time):
        for turn, order in (rewound(len(episode), rng), standing_still(len(episode), rng)):
            features = encode(reordered(episode, order))
            yield Clip(features[turn + 1 :], order[turn + 1 :])  # up to the turn it is the goal as it was
        turn, order = standing_still(len(episode), rng)
        still = order[turn:]
        yield Clip(encode(reordered(episode, still)), still, late=True)
    said = rng.permutation(other_words(episode.instruction, words))
    for one in said[: config.of_words].tolist():
        yield Clip(encode(under_words(episode, one)), np.arange(len(episode)), wanted=False)


def rewound(steps: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Return one of 2 or more ``steps``, and the order (m,) that goes on to it, and back for a random while."""
    turn = int(rng.integers(1, steps))
    back = int(rng.integers(1, turn + 1))
    return turn, np.concatenate((np.arange(turn + 1), np.arange(turn - 1, turn - 1 - back, -1)))


def standing_still(steps: int, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Return one of ``steps``, and the order (m,) that goes on to it, and shows it again for a random while.

    It is shown again for as long as the goal took, at most.
    """
    turn = int(rng.integers(steps))
    return turn, np.concatenate((np.arange(turn), np.full(1 + int(rng.integers(1, steps + 1)), turn)))


def reordered(episode: Episode, order: np.ndarray) -> Episode:
    """Return ``episode`` as if its steps had come in ``order`` (m,): steps may be missing, or come several times."""
    context = episode.context
    if context is not None:
        context = replace(
            context, **{name: getattr(context, name)[order] for name in ("which", "age_s", "place", "mask")}
        )
    images = {name: np.ascontiguousarray(stack[order]) for name, stack in episode.images.items()}
    return replace(
        episode,
        images=images,
        state=episode.state[order],
        action=episode.action[order],
        person=episode.person[order],
        context=context,
    )


def other_words(instruction: str, words: Collection[str]) -> list[str]:
    """Return those of ``words`` that surely ask for another goal than ``instruction``, sorted.

    They say the same of things of other colours. What is said in another way may ask for the same.
    """
    form, colours = form_of(instruction), colours_of(instruction)
    return sorted({one for one in words if form_of(one) == form and colours_of(one) != colours})


def under_words(episode: Episode, words: str) -> Episode:
    """Return ``episode`` as if ``words`` had been said.

    The memory offers first what fits the words best: by the cosine of their embeddings to the thousandth, as
    :meth:`engram.core.contracts.Memory.context` does. Of more objects than it offered, those that only fit ``words``
    are missing.
    """
    context = episode.context
    if context is not None:
        said = embed_instructions([words])[0].numpy()
        lengths = np.linalg.norm(context.embeddings, axis=1) * np.linalg.norm(said)
        fit = np.round(context.embeddings @ said / np.maximum(lengths, 1e-9), 3)[context.which]
        order = np.argsort(np.where(context.mask, -fit, np.inf), axis=1, kind="stable")
        parts = {name: getattr(context, name) for name in ("which", "age_s", "mask")}
        parts = {name: np.take_along_axis(part, order, 1) for name, part in parts.items()}
        context = replace(context, **parts, place=np.take_along_axis(context.place, order[..., None], 1))
    return replace(episode, instruction=words, context=context)
