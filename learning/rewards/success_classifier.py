"""A success classifier: learns from labelled episodes whether a goal is reached and how far it has come.

It judges what no relation of the scene graph says, such as "catch the cube as it leaves the tunnel". Its input is what
the policy's action head is conditioned by: images, words, and what the policy reads of its memories, encoded already.
So a few dozen episodes are enough. Success is learnt as in SERL (Luo et al., 2024, arXiv:2401.16013), from the last
steps of goals that were reached against all others; progress as the share of the way of successful episodes, a
potential whose differences sum to one (as in SPA-RL, arXiv:2505.20732). Both are learnt from clips of these episodes as
well, in which time does not tell the share of the way (:mod:`engram.learning.rewards.clips`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.paths import at_home
from engram.core.statistics import wilson
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, Features, Verdict
from engram.learning.rewards.contract import Moment, RewardSource

CONFIRM, DENY = 0.8, 0.2
"""Confirmed from this probability on, denied up to that one; between them it cannot tell."""
SHOWN = 4
"""The last steps of a goal that was reached, which show it: a person needs half a second to see it and to say so."""
UNCLEAR = 5
"""Steps before these of which nobody knows whether they show it; they teach nothing."""
LOOKS = 3
"""Steps in a row that confirm a success before a goal ends."""
FOLDS = 4
"""Of the cross-validation: each episode is judged by a classifier that never saw it."""
LEAST = 4
"""Goals of each outcome that are needed at least."""
STRANGE = 0.05
"""Share of the features that may lie beyond all that it has seen; more, and it cannot tell."""
MARGIN = 1.0
"""Standard deviations by which a feature may lie beyond what it has seen and still be known."""
WEIGHTS, CARD = "classifier.safetensors", "classifier.json"
_COLOURS = "red|green|blue|yellow|orange|purple|pink|white|black|gray|grey|brown|cyan"
_COLOURED = re.compile(
    rf"\b(?:{_COLOURS})(?: (?:{_COLOURS}|ball|block|bottle|bowl|box|button|can|cube|cup|mug|plate))?\b"
)
"""A colour, or a coloured thing."""


@dataclass(frozen=True)
class ClassifierConfig:
    """Size and training of the classifier."""

    members: int = 6
    """Networks whose mean tells."""
    share: float = 0.5
    """Of the goals of each outcome, drawn for each network (bagging, Breiman 1996): where a few goals decide, they
    disagree, and it cannot tell."""
    width: int = 128
    """Of each of the two hidden layers."""
    updates: int = 400
    """AdamW updates of each."""
    batch_size: int = 256
    """Steps in an update: a quarter shows a success, three eighths are of missed goals, and as many of any."""
    dropout: float = 0.3
    learning_rate: float = 1e-3
    weight_decay: float = 0.05


@dataclass(frozen=True)
class Clip:
    """What the policy made of a reached goal whose steps were shown to it again in another way."""

    features: np.ndarray
    """(m, c) float32, m >= 1."""
    shown: np.ndarray
    """(m,) int64: the step of the goal that each step of the clip shows."""
    wanted: bool = True
    """Whether it was shown under the words of the goal; under those of another one it reaches nothing."""
    late: bool = False
    """Whether it began after the goal did: the policy cannot remember what came before."""


@dataclass(frozen=True)
class LabelledEpisode:
    """What the policy made of each step of a goal, and whether the goal was reached."""

    words: str
    features: np.ndarray
    """(n, c) float32."""
    success: bool
    clips: tuple[Clip, ...] = ()
    """Of a goal that was reached. They are learnt from wherever the goal is, and nowhere else."""

    def progress(self) -> np.ndarray:
        """Return the share of the way (n,) that each step of a successful episode has come, 0..1."""
        return np.linspace(0.0, 1.0, len(self.features), dtype=np.float32)


def form_of(words: str) -> str:
    """Return ``words`` without the coloured things in them: goals that differ in these alone are judged alike."""
    return _COLOURED.sub("*", " ".join(words.casefold().split()).rstrip("."))


def colours_of(words: str) -> tuple[str, ...]:
    """Return the colours in ``words``, in their order."""
    return tuple(thing.split()[0] for thing in _COLOURED.findall(" ".join(words.casefold().split())))


class SuccessClassifier:
    """An ensemble of small networks on the features of one policy's encoder."""

    def __init__(self, encoder: str, forms: Sequence[str], network: Ensemble, figures: dict[str, Any]) -> None:
        """``encoder`` made the features that it knows; ``forms`` are those of the words; ``figures`` say how right
        it was on goals that it had not seen."""
        self.encoder, self.forms, self.figures = encoder, frozenset(forms), figures
        self.network = network.eval()

    @classmethod
    def fit(
        cls, encoder: str, episodes: Sequence[LabelledEpisode], config: ClassifierConfig | None = None, seed: int = 0
    ) -> SuccessClassifier:
        """Learn from ``episodes``, whose features ``encoder`` made.

        Raises:
            InvalidInputError: fewer than ``LEAST`` goals were reached, or missed.
        """
        config = config or ClassifierConfig()
        for outcome in (True, False):
            if (count := sum(one.success is outcome for one in episodes)) < LEAST:
                what = "reached" if outcome else "missed"
                raise InvalidInputError(
                    f"success classifier: {count} goals that were {what}, expected at least {LEAST}"
                )
        figures = _cross_validated(episodes, config, seed)
        forms = sorted({form_of(one.words) for one in episodes})
        return cls(encoder, forms, _trained(episodes, config, seed), figures)

    def judge(self, features: np.ndarray) -> np.ndarray:
        """Return for each step of ``features`` (n, c) the probability that it shows a success, and the progress.

        They are (n, 2), 0..1; nan where the features are unlike all that it has seen.
        """
        return self.network.judge(features)

    def save(self, folder: Path) -> None:
        """Write it into ``folder``."""
        tensors = {name: tensor.contiguous() for name, tensor in self.network.state_dict().items()}
        write_atomic(folder / WEIGHTS, save(tensors))
        about = {"encoder": self.encoder, "forms": sorted(self.forms), "network": self.network.sizes}
        write_atomic(folder / CARD, (json.dumps(about | {"figures": self.figures}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: Path | str) -> SuccessClassifier:
        """Return what :meth:`save` wrote; raises StoreError if it is missing or damaged."""
        folder = at_home(folder)
        try:
            card = json.loads((folder / CARD).read_text())
            network = Ensemble(**card["network"])
            network.load_state_dict(load((folder / WEIGHTS).read_bytes()))
            if not all(bool(one.isfinite().all()) for one in network.state_dict().values()):
                raise ValueError("a number in it is not finite")
            return cls(str(card["encoder"]), [str(one) for one in card["forms"]], network, dict(card["figures"]))
        except (*DAMAGED, OSError, RuntimeError, SafetensorError) as error:
            raise StoreError(f"{folder}: no success classifier of engram classifier: {error}") from error


def digest_of(folder: Path | str) -> str:
    """Return 12 hex digits that tell the classifier in ``folder`` from any other; StoreError: it cannot be read."""
    folder = at_home(folder)
    try:
        return hashlib.sha256(b"".join((folder / name).read_bytes() for name in (CARD, WEIGHTS))).hexdigest()[:12]
    except OSError as error:
        raise StoreError(f"{folder}: no success classifier of engram classifier: {error}") from error


class Ensemble(nn.Module):
    """Small networks that tell of the features (n, c) of n steps how likely they show a success, and the progress."""

    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, inputs: int, width: int, members: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = {"inputs": inputs, "width": width, "members": members}
        for name in ("mean", "std", "low", "high"):
            self.register_buffer(name, torch.zeros(inputs))
        self.members = nn.ModuleList(
            nn.Sequential(
                *(nn.Linear(inputs, width), nn.SiLU(), nn.Dropout(dropout)),
                *(nn.Linear(width, width), nn.SiLU(), nn.Dropout(dropout)),
                nn.Linear(width, 2),
            )
            for _ in range(members)
        )

    def know(self, features: Tensor) -> None:
        """Take the range of ``features`` (n, c) for what has been seen."""
        self.mean.copy_(features.mean(0))
        self.std.copy_(features.std(0) + 1e-3)
        self.low.copy_(features.amin(0) - MARGIN * self.std)
        self.high.copy_(features.amax(0) + MARGIN * self.std)

    def scaled(self, features: Tensor) -> Tensor:
        """Return ``features`` (n, c) in standard deviations."""
        return ((features - self.mean) / self.std).clamp(-5.0, 5.0)

    def judge(self, features: np.ndarray) -> np.ndarray:
        """Return probability and progress (n, 2) of ``features`` (n, c); nan where they are strange."""
        return self.tell(torch.tensor(features, dtype=torch.float32)).numpy()

    @torch.no_grad()
    def tell(self, features: Tensor) -> Tensor:
        """Return probability and progress (n, 2) of ``features`` (n, c); nan where they are strange."""
        if features.shape[1] != len(self.mean):
            raise InvalidInputError(f"features: {features.shape[1]} numbers, expected {len(self.mean)}")
        strange = (features < self.low) | (features > self.high) | ~features.isfinite()
        scaled = self.scaled(features.nan_to_num())
        told = torch.stack([torch.sigmoid(member(scaled)) for member in self.members]).mean(0)
        told[strange.float().mean(1) > STRANGE] = math.nan
        return told


def _trained(episodes: Sequence[LabelledEpisode], config: ClassifierConfig, seed: int) -> Ensemble:
    """Return an ensemble that learnt from ``episodes``."""
    features = torch.from_numpy(np.concatenate([one.features for one in episodes]))  # what happened: not of clips
    torch.manual_seed(seed)
    ensemble = Ensemble(features.shape[1], config.width, config.members, config.dropout)
    ensemble.know(features)
    draw = np.random.default_rng(seed)
    outcomes = [[one for one in episodes if one.success is outcome] for outcome in (True, False)]
    for member in ensemble.members:
        some = [
            each[i] for each in outcomes for i in draw.permutation(len(each))[: math.ceil(config.share * len(each))]
        ]
        _train(member, ensemble, some, config)
    return ensemble.eval()


def _train(
    member: nn.Module, ensemble: Ensemble, episodes: Sequence[LabelledEpisode], config: ClassifierConfig
) -> None:
    """Let one network of ``ensemble`` learn from ``episodes``."""
    parts = [part for one in episodes for part in _labelled(one)]
    features, done, clear, progress = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
    features = ensemble.scaled(features)
    missed, way = progress.isnan(), torch.nonzero(~progress.isnan())[:, 0]
    shown, others, missed = (torch.nonzero(mask)[:, 0] for mask in (done & clear, ~done & clear, missed))
    eighth = config.batch_size // 8
    optimizer = torch.optim.AdamW(member.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    for _ in range(config.updates):
        rows = torch.cat((_drawn(shown, 2 * eighth), _drawn(missed, 3 * eighth), _drawn(others, 3 * eighth)))
        loss = F.binary_cross_entropy_with_logits(member(features[rows])[:, 0], done[rows].float())
        rows = _drawn(way, 4 * eighth)
        loss = loss + F.l1_loss(torch.sigmoid(member(features[rows])[:, 1]), progress[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _drawn(rows: Tensor, count: int) -> Tensor:
    return rows[torch.randint(len(rows), (count,))]


_Labelled = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Features (n, c) of steps, whether each shows a success, whether that is clear, and the progress (nan: not known)."""


def _labelled(episode: LabelledEpisode) -> Iterator[_Labelled]:
    """Yield what is learnt from the steps of ``episode``, and from those of its clips."""
    n = len(episode.features)
    done, clear = np.zeros(n, bool), np.ones(n, bool)
    if not episode.success:
        yield episode.features, done, clear, np.full(n, np.nan, np.float32)
        return
    done[-SHOWN:] = True
    clear[-SHOWN - UNCLEAR : -SHOWN] = False
    progress = episode.progress()
    yield episode.features, done, clear, progress
    for clip in episode.clips:
        if not clip.wanted:
            m = len(clip.shown)
            yield clip.features, np.zeros(m, bool), np.ones(m, bool), np.zeros(m, np.float32)
            continue
        shows, known = done[clip.shown], clear[clip.shown]
        if not shows[-1]:  # what was reached is undone: its success is neither taught nor denied
            shows, known = np.zeros_like(shows), known & ~shows
        if clip.late:  # what has to be remembered is not: it teaches progress alone
            known = np.zeros_like(known)
        yield clip.features, shows, known, progress[clip.shown]


def _cross_validated(episodes: Sequence[LabelledEpisode], config: ClassifierConfig, seed: int) -> dict[str, Any]:
    """Return how right classifiers are on episodes that they did not learn from."""
    parts: list[list[int]] = [[] for _ in range(FOLDS)]
    for outcome in (True, False):  # each part has some of both
        of_it = [i for i, one in enumerate(episodes) if one.success is outcome]
        for at, i in enumerate(np.random.default_rng(seed).permutation(of_it)):
            parts[at % FOLDS].append(int(i))
    told: dict[int, str] = {}
    for part in parts:
        rest = [one for i, one in enumerate(episodes) if i not in part]
        ensemble = _trained(rest, config, seed)
        told |= {i: verdict_on(ensemble.judge(episodes[i].features)[:, 0]) for i in part}
    return figures_of([told[i] for i in range(len(episodes))], [one.success for one in episodes])


def verdict_on(probabilities: np.ndarray) -> str:
    """Return what becomes of a goal at whose steps a success has ``probabilities`` (n,).

    It is confirmed where enough steps in a row say so, else denied, or cannot_tell, as at its last step.
    """
    looks, outcome = 0, DENIED
    for probability in probabilities.tolist():
        outcome = outcome_at(probability)
        looks = looks + 1 if outcome == CONFIRMED else 0
        if looks >= LOOKS:
            return CONFIRMED
    return CANNOT_TELL if outcome == CONFIRMED else outcome


def outcome_at(probability: float) -> str:
    """Return the outcome that goes with ``probability``."""
    if math.isnan(probability) or DENY < probability < CONFIRM:
        return CANNOT_TELL
    return CONFIRMED if probability >= CONFIRM else DENIED


def figures_of(told: Sequence[str], success: Sequence[bool]) -> dict[str, Any]:
    """Return how often what was ``told`` of goals was right, with 95 % intervals, as JSON takes it.

    None: a share of no goals, as ``right`` where nothing was told.
    """
    pairs = list(zip(told, success, strict=True))

    def rate(hits: int, of: int) -> dict[str, Any] | None:
        return asdict(wilson(hits, of)) if of else None

    certain = [(one, well) for one, well in pairs if one != CANNOT_TELL]
    return {
        "right": rate(sum((one == CONFIRMED) == well for one, well in certain), len(certain)),
        "false_success": rate(sum(one == CONFIRMED for one, well in pairs if not well), sum(not w for w in success)),
        "missed": rate(sum(one == DENIED for one, well in pairs if well), sum(success)),
        "not_told": rate(len(pairs) - len(certain), len(pairs)),
    }


class ClassifierVerdict(RewardSource):
    """Judges by one or more success classifiers: by the one that knows the words of the goal."""

    name = "classifier"
    reads_features = True

    def __init__(self, classifiers: Sequence[SuccessClassifier]) -> None:
        self._classifiers = tuple(classifiers)
        self.begin("")

    @classmethod
    def load(cls, folders: Sequence[str]) -> ClassifierVerdict:
        """Return a source that judges by the classifiers in ``folders``; raises StoreError for one that is none."""
        return cls([SuccessClassifier.load(folder) for folder in folders])

    def knows(self, instruction: str) -> bool:
        """Whether a classifier learnt from goals with the words ``instruction``, colours aside."""
        return any(form_of(instruction) in one.forms for one in self._classifiers)

    def begin(self, instruction: str) -> None:
        """Take the words of a new episode."""
        self._words = instruction
        self._known = [one for one in self._classifiers if form_of(instruction) in one.forms]

    def judge(self, moment: Moment) -> Verdict:
        """Return whether the policy's newest features show a success."""
        classifier, why = self._for(moment.features)
        if classifier is None or moment.features is None:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, why)
        probability, progress = classifier.judge(moment.features.values[None])[0].tolist()
        outcome = outcome_at(probability)
        if math.isnan(probability):
            return self._told(moment, outcome, probability, progress, "it has seen nothing like this")
        return self._told(
            moment,
            outcome,
            probability if outcome != CANNOT_TELL else math.nan,
            1.0 if outcome == CONFIRMED else min(progress, 0.99),
            f"it looks {'' if outcome == CONFIRMED else 'not '}done (probability {probability:.2f})",
        )

    def _for(self, features: Features | None) -> tuple[SuccessClassifier | None, str]:
        """Return the classifier that judges ``features``, or why there is none."""
        if not self._known:
            return None, f"no classifier has learnt {self._words!r}"
        if features is None:
            return None, "the policy offers no features"
        for one in self._known:
            if one.encoder == features.encoder:
                return one, ""
        return None, "it learnt from another encoder than that of the policy: run engram classifier again"

    def _told(self, moment: Moment, outcome: str, probability: float, progress: float, reason: str) -> Verdict:
        return Verdict(moment.stamp_ns, moment.episode, self.name, outcome, probability, progress, reason)
