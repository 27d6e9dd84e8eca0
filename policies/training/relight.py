"""Teaches a policy to see in other light: ``engram relight``.

The pictures of a dataset are altered as other lamps, another camera and another table would alter them. The camera
encoders learn to make of an altered picture what the policy's own make of the recorded one. All other weights stay: the
policy does what it did, and remembers what it did. Its own encoders are the teacher, so no action is needed, and
minutes are enough (self-distillation under augmentation; compare SODA, Hansen & Wang, arXiv 2011.13389).
"""

from __future__ import annotations

import copy
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from engram.core.errors import EngramError, InvalidInputError
from engram.core.lock import WriterLock
from engram.core.notices import hush_datasets
from engram.core.paths import check_free
from engram.core.provenance import commit, dataset_hash
from engram.policies.checkpoint import export, read_card, size
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.processor_engram_vla import DownsampleImages, of_shrunk_images
from engram.policies.opening import Opened, files_of, open_policy
from engram.policies.training.frames import Frames, load_frames, on_device
from engram.policies.training.processes import keep_freed_memory, training_device
from engram.policies.training.relight_config import RelightConfig, check, resolved
from engram.policies.training.train import schedule
from engram.policies.vla.network import EngramVLA

BRIGHTER, STEEPER, CURVED = 0.45, 0.25, 0.2
"""How far the logarithms of brightness, of its change from the middle of a picture to its edge, and of the exponent of
its curve (gamma) are drawn to either side."""
TINTED, CLOTH = 0.1, 0.25
"""How far each colour channel is drawn to either side: its share, and its logarithm on what has no colour."""
COLOURFUL = 40.0
"""A pixel whose channels are so far apart, of 255, counts as coloured, not as table, wall or robot."""
NOISY = 0.04
"""Largest standard deviation of the noise of a pixel, of the range from black to white."""
UNALTERED = 0.15
"""Share of the pictures that stay as they were recorded."""
HELD_OUT, MEASURED = 20, 512
"""One of so many episodes is not learnt from, and so many of their frames, drawn, tell how well the encoders see."""
STILL = 1e-3
"""Least variance of what a camera tells, of its mean square: it may have been covered all the time."""
OWN_WORDS_SHARE, WORD_NOISE = 0.4, 0.25
"""Share of the pictures that are seen under their own instruction, and largest standard deviation of the noise on the
word features of the others, of their root mean square."""
WARMUP, EMA, CLIP = 100, 0.998, 1.0
"""Steps in which the learning rate rises, decay of the averaged weights, norm that gradients are clipped to."""


def main(config: RelightConfig) -> dict[str, Any]:
    """Teach and export; return the policy's folder, and how far its keypoints are off in altered pictures [px].

    Raises:
        EngramError: the config cannot be, the policy is none of ours or does not see what the dataset shows, or another
            process writes into ``out`` (StoreLockedError).
    """
    config = resolved(config)
    check(config)
    torch.set_num_threads(1)
    hush_datasets()
    keep_freed_memory()
    opened = open_policy(config.start_from)
    if not isinstance(opened.policy, EngramVLAPolicy):
        raise InvalidInputError(
            f"start_from {config.start_from!r}: a policy of type {opened.version.split('-')[0]}, expected engram_vla, "
            "whose camera encoders can be taught"
        )
    card = read_card(files_of(config.start_from))
    frames = _frames(config, opened)
    check_free(Path(config.out), 2 * size(opened.policy.state_dict().values()))
    lock = WriterLock(Path(config.out))
    try:
        check(config)  # another process may have ended just now
        return Relighting(config, opened.policy, opened, frames, card).run()
    finally:
        lock.release(tidy=True)


class Relighting:
    """The camera encoders of one policy, and those that they learn from."""

    def __init__(
        self, config: RelightConfig, policy: EngramVLAPolicy, opened: Opened, frames: Frames, began: dict[str, Any]
    ) -> None:
        """``began``: the card of the policy as it was opened."""
        self.config, self.policy, self.opened, self.frames, self.began = config, policy, opened, frames, began
        self.device = training_device(config.device)
        self.preprocess = of_shrunk_images(opened.preprocess)
        self.network: EngramVLA = policy.model.to(self.device).eval().requires_grad_(False)
        self.taught = self.network.encoders
        self.own = copy.deepcopy(self.taught)
        self.averaged = copy.deepcopy(self.taught)
        self.taught.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.taught.parameters(), config.learning_rate, weight_decay=0.0)
        self.learnt, self.held_out = _parted(frames.last)

    def run(self) -> dict[str, Any]:
        """Teach to the last step, export and return what became of it."""
        config, begun = self.config, time.monotonic()
        before = self.error_px(self.own)
        for step in tqdm(range(config.steps), "seeing in other light", mininterval=5):
            self.update(step)
        self.taught.load_state_dict(self.averaged.state_dict())
        errors = {"before": before, "after": self.error_px(self.taught)}
        if not math.isfinite(errors["after"]):
            raise EngramError("what the encoders tell is not finite; nothing was saved; try a lower learning_rate")
        if errors["after"] > errors["before"]:
            raise EngramError(
                f"keypoints in altered pictures are off by {errors['after']} px, before by {errors['before']}; nothing "
                "was saved; try more steps or a lower learning_rate"
            )
        self.policy.to("cpu")
        minutes = round((time.monotonic() - begun) / 60, 1)
        folder = Path(config.out) / "policy"
        export(folder, self.policy, self.opened.preprocess, self.opened.postprocess, self.card(errors, minutes))
        return {"policy": str(folder), "keypoints_off_px": errors, "minutes": minutes}

    def update(self, step: int) -> float:
        """Take one optimiser step and return the loss.

        Raises:
            EngramError: it is not finite; nothing is saved.
        """
        config = self.config
        rng = np.random.default_rng((config.seed, step))
        torch.manual_seed(int(rng.integers(2**62)))
        rows = np.sort(rng.choice(self.learnt, config.batch_size))
        loss = sum((_distance(seen, told) for seen, told in self._both(self.taught, rows)), torch.zeros(()))
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * schedule(step, WARMUP, step / config.steps)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.taught.parameters(), CLIP)
        if not (loss.isfinite() and norm.isfinite()):
            raise EngramError(
                f"step {step}: the loss or its gradient is not finite; nothing was saved; try a lower learning_rate"
            )
        self.optimizer.step()
        with torch.no_grad():
            share = 1 - min(EMA, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.averaged.parameters()), list(self.taught.parameters()), share)
        return float(loss.detach())

    @torch.no_grad()
    def error_px(self, encoders: nn.ModuleList) -> float:
        """Return how far the keypoints of ``encoders`` are off in altered pictures, on average over held-out ones and
        both axes [pixels of the pictures as the policy sees them]."""
        rng = np.random.default_rng(self.config.seed)
        torch.manual_seed(int(rng.integers(2**62)))
        rows = rng.choice(self.held_out, min(MEASURED, len(self.held_out)), replace=False)
        off = [seen - told for seen, told in self._both(encoders, np.sort(rows), keypoints=True)]
        sides = [self.frames.images[camera].shape[-1] for camera in self.network.cameras]
        return round(float(np.mean([float(d.abs().mean()) * side / 2 for d, side in zip(off, sides, strict=True)])), 2)

    def _words(self, embeddings: Tensor) -> Tensor:
        """Return the word features (B, d) of instructions (B, n), most of them altered.

        60 % of the rows get those of a random interpolation between two instructions of the batch, plus Gaussian noise
        of up to ``WORD_NOISE``. The encoders hear the words (FiLM). Taught under the dataset's instructions alone, they
        would see worse under others.
        """
        b = len(embeddings)
        share, strength, own = (torch.rand(b, 1, device=embeddings.device) for _ in range(3))
        mixed = self.network.words(torch.lerp(embeddings, embeddings[torch.randperm(b)], share))
        noise = WORD_NOISE * strength * mixed.square().mean().sqrt() * torch.randn_like(mixed)
        return torch.where(own < OWN_WORDS_SHARE, self.network.words(embeddings), mixed + noise)

    def card(self, errors: dict[str, float], minutes: float) -> dict[str, Any]:
        """Return what is known of the taught policy: how it was made, and the card of the one that it began with."""
        config, card = self.config, self.began
        kept = {name: card[name] for name in ("tasks", "instructions") if name in card}
        return kept | {
            "policy": self.policy.name,
            "command": " ".join(sys.argv),
            "relight_config": asdict(config),
            "dataset_sha256": dataset_hash(config.dataset),
            "frames": len(self.frames),
            "keypoints_off_px": errors,
            "trained_minutes": minutes,
            "processes": 1,
            "commit": commit(),
            "started_from": {name: value for name, value in card.items() if name not in kept},
        }

    def _both(self, encoders: nn.ModuleList, rows: np.ndarray, keypoints: bool = False) -> list[tuple[Tensor, Tensor]]:
        """Return what ``encoders`` make of altered pictures of ``rows`` beside what the policy's own make of those as
        they were recorded: tokens and keypoints of each camera, or its ``keypoints`` alone."""
        shown, cameras = self.frames.shown(rows), self.network.cameras
        altered = {camera: in_other_light(shown[camera], self.config.strength) for camera in cameras}
        recorded, seen = (on_device(self.preprocess({**shown, **new}), self.device) for new in ({}, altered))
        words = self._words(recorded[LANGUAGE_KEY])
        pairs: list[tuple[Tensor, Tensor]] = []
        for learner, own, camera in zip(encoders, self.own, cameras, strict=True):
            with torch.no_grad():
                told = own(recorded[camera], words)
            pairs += list(zip(learner(seen[camera], words), told, strict=True))[int(keypoints) :]
        return pairs


def _distance(seen: Tensor, told: Tensor) -> Tensor:
    """Return the mean square of the difference, of the variance of ``told`` (B, ...) over the batch."""
    return (seen - told).square().mean() / (told.var(0).mean() + STILL * told.square().mean() + 1e-12)


def _parted(last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn from and those of every ``HELD_OUT``-th episode; of a single one, all twice.

    ``last`` (n,): the last frame of each frame's episode.
    """
    ends, episode = np.unique(last, return_inverse=True)
    rows = np.arange(len(last))
    if len(ends) == 1:
        return rows, rows
    held_out = episode % HELD_OUT == min(HELD_OUT, len(ends)) - 1
    return rows[~held_out], rows[held_out]


def in_other_light(pictures: Tensor, strength: float = 1.0) -> Tensor:
    """Return ``pictures`` (B, 3, H, W) uint8, each as by another lamp and camera, on another table; some as they are.

    What is drawn for each picture: brightness, its slope across the picture, the exponent of its curve (gamma), the
    share of each channel, the colour of what has none, and pixel noise. ``strength`` scales how far all of it is drawn.
    """
    b, _, h, w = pictures.shape
    image = pictures.to(torch.float32) / 255

    def drawn(*shape: int) -> Tensor:
        return strength * (2 * torch.rand(b, *shape) - 1)

    down, across = torch.linspace(-1, 1, h)[:, None], torch.linspace(-1, 1, w)
    slope = STEEPER * drawn(2, 1, 1)
    gain = torch.exp(BRIGHTER * drawn(1, 1, 1) + slope[:, :1] * down + slope[:, 1:] * across)
    colour = 255 * (image.amax(1, keepdim=True) - image.amin(1, keepdim=True))
    cloth = torch.exp(torch.exp(-((colour / COLOURFUL) ** 2)) * CLOTH * drawn(3, 1, 1))
    lit = image ** torch.exp(CURVED * drawn(1, 1, 1)) * gain * (1 + TINTED * drawn(3, 1, 1)) * cloth
    lit = lit + strength * NOISY * torch.rand(b, 1, 1, 1) * torch.randn(image.shape)
    as_it_is = torch.rand(b, 1, 1, 1) < UNALTERED
    return torch.where(as_it_is, image, lit).mul(255).round().clamp(0, 255).to(torch.uint8)


def _frames(config: RelightConfig, opened: Opened) -> Frames:
    """Return the frames of the dataset as the policy sees them.

    Raises:
        InvalidInputError: the dataset lacks a camera of the policy, or nothing shrinks its pictures.
    """
    steps = [step for step in opened.preprocess.steps if isinstance(step, DownsampleImages)]
    if len(steps) != 1:
        raise InvalidInputError(
            f"start_from {config.start_from!r}: {len(steps)} steps engram_downsample_images before it, expected one"
        )
    shrink = steps[0]
    root = Path(os.path.abspath(config.dataset))  # "." has no name, and a link's cache lies beside the link
    cache = Path(config.cache) if config.cache else root.with_name(f"{root.name}.frames{shrink.size}")
    frames = load_frames(root, shrink, cache, opened.policy.config.language_pieces)
    _check_cameras(config, opened.policy.model.cameras, sorted(frames.images))
    return frames


def _check_cameras(config: RelightConfig, wanted: Sequence[str], there: Sequence[str]) -> None:
    if missing := sorted(set(wanted) - set(there)):
        raise InvalidInputError(
            f"dataset {config.dataset!r}: no pictures {missing[0]}, which {config.start_from!r} sees; "
            f"there are {', '.join(there)}"
        )
