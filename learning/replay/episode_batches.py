"""Windows of episodes as the frames and rows that sequence training takes."""

from __future__ import annotations

import numpy as np

from engram.core.context_rows import ContextRows
from engram.learning.replay.buffer import IMAGES, Windows
from engram.policies.lerobot.processor_engram_vla import embed_instructions
from engram.policies.training.frames import Frames, same_views
from engram.policies.training.sequences import Window


def window(windows: Windows) -> Window:
    """Return ``windows`` by the rows of what :func:`gather` returns for them."""
    lengths = np.array([len(episode) for episode in windows.episodes])
    begins = np.cumsum(lengths) - lengths
    steps = windows.at[:, None] + np.arange(windows.steps)
    valid = steps < lengths[:, None]
    return Window(np.where(valid, begins[:, None] + steps, 0), valid, windows.at == 0, windows.at)


def gather(windows: Windows, pieces: int) -> Frames:
    """Return all steps of the episodes of ``windows``, stream after stream; ``pieces`` as in ``embed_instructions``."""
    episodes = windows.episodes
    lengths = [len(episode) for episode in episodes]
    stream = np.repeat(np.arange(len(episodes)), lengths)
    last = np.repeat(np.cumsum(lengths) - 1, lengths)
    cameras = episodes[0].images
    images = {IMAGES + name: np.concatenate([e.images[name] for e in episodes]) for name in cameras}
    words = tuple(episode.instruction for episode in episodes)
    return Frames(
        images=images,
        state=np.concatenate([episode.state for episode in episodes]),
        action=np.concatenate([episode.action for episode in episodes]),
        last=last,
        words=stream,
        group=np.zeros(len(stream), np.int64),
        view=same_views(list(images.values()), last),
        instructions=words,
        groups=("experience",),
        embeddings=embed_instructions(list(words), pieces).numpy(),
        idle=np.concatenate([episode.unlearnt for episode in episodes]),
        context=ContextRows.joined([(episode.context, len(episode)) for episode in episodes]),
    )
