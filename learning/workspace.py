"""A learner's folder: training state and weights beside the experience, gone on from after a restart.

What is there can be damaged, or of another network or another lineage, for example when the learner is started with
another policy. It is then moved aside, and no more than that; training begins anew with the experience that there is.
Where the disk refuses it, nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engram.core.contracts import Policy
from engram.core.errors import StoreError, UnknownNameError, WeightsError
from engram.learning.algorithms import Algorithm, make_algorithm
from engram.learning.experience.database import UnreadableStoreError, put_back, set_aside
from engram.learning.learner import EpisodeSource, Learner
from engram.learning.learner_config import LearnerConfig, check_paid, check_shares
from engram.learning.live import LiveRecord
from engram.learning.practised import Practised
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import compare_specs, make_manifest, tensor_specs

EXPERIENCE, TRAINING, PRACTICE = "experience", "training", "practice"
"""Folders of the robots' experience, of the training state, and of what was practised in simulation."""
WEIGHTS, LIVE = "weights", "live"
"""Folders of the versions of the weights, and of how they did on the robots."""
PARTS = (TRAINING, PRACTICE, WEIGHTS, LIVE)
"""Folders that belong to one policy; the experience beside them does not."""


@dataclass(frozen=True)
class Workspace:
    """A learner, the library of its weights, and how they did on the robots."""

    learner: Learner
    library: WeightsLibrary
    live: LiveRecord
    practised: Practised
    moved_aside: str = ""
    """What of the folder was moved aside, why and where to, and what becomes of that; empty: nothing was."""


def open_workspace(
    folder: Path, source: EpisodeSource, policy: Policy, algorithm: str, config: LearnerConfig | None = None
) -> Workspace:
    """Return the learner that trains ``policy`` by ``algorithm`` in ``folder``, as it was left.

    Raises:
        UnknownNameError, InvalidInputError: see :class:`engram.learning.learner.Learner`.
        StoreLockedError: another process has the folder.
        StoreError: the disk refuses it; everything lies where it lay.
    """
    made, parts, library = make_algorithm(algorithm, policy), _Parts(folder), None
    for check in (check_paid, check_shares):
        check(made, config or LearnerConfig())  # before anything is written
    try:
        library = parts.open(
            PARTS,
            lambda: _open_library(folder, policy, made),
            "training state and weights",
            lambda _: f"training begins anew from {policy.version}",
        )
        learner = _open_learner(parts, library, source, policy, algorithm, made, config)
        live = parts.open(
            (LIVE,),
            lambda: LiveRecord(folder / LIVE / "outcomes.json"),
            "the outcomes on the robots",
            lambda _: "the stored episodes are counted anew",
        )
        live.follow(source.id)
        return Workspace(learner, library, live, Practised(folder / PRACTICE), "; ".join(parts.told))
    except BaseException as error:
        if library is not None:
            library.close()
        parts.put_back(error)
        if isinstance(error, OSError):
            raise StoreError(f"{folder}: {error}") from error
        raise


class _Parts:
    """Opens the parts of ``folder``, and moves aside those that cannot be read or do not fit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._moved: list[Path] = []
        self.told: list[str] = []
        """What was moved, why and where to, and what becomes of that."""

    def open[T](self, names: Sequence[str], make: Callable[[], T], what: str, then: Callable[[T], str]) -> T:
        """Return what ``make`` makes of the parts ``names``, or of empty ones once these were moved aside.

        Args:
            names: of the folders.
            make: raises UnknownNameError, WeightsError or UnreadableStoreError for what is damaged or does not fit.
            what: is in them, in words.
            then: says, and sees to, what becomes of what was made of empty ones.
        """
        try:
            return make()
        except (UnknownNameError, WeightsError, UnreadableStoreError) as error:
            try:
                aside = set_aside(self.folder, names)
            except OSError as stays:
                raise StoreError(f"{error}; it cannot be moved aside: {stays}") from error
            self._moved.append(aside)
            made = make()
            self.told.append(f"{error}; {what} lie in {aside} now; {then(made)}")
            return made

    def put_back(self, error: BaseException) -> None:
        """Move everything back, as ``error`` came in between; StoreError: it names what stays aside."""
        while self._moved:
            aside = self._moved.pop()
            try:
                put_back(aside)
            except OSError as stays:
                raise StoreError(f"{error}; what was there lies in {aside}: {stays}") from error


def _open_library(folder: Path, policy: Policy, algorithm: Algorithm) -> WeightsLibrary:
    """Return the weights in ``folder``; the first, that training begins with, can always be gone back to.

    Raises:
        UnknownNameError, WeightsError, UnreadableStoreError: they are damaged, or not those of ``algorithm``.
        StoreError: the disk refuses it.
    """
    library = WeightsLibrary(folder / WEIGHTS)
    try:
        first = algorithm.weights()
        if library.current:
            data, manifest = library.get(library.current)
            what = f"{folder / WEIGHTS}: {library.current}"
            compare_specs(tensor_specs(data), tensor_specs(first), what)
            algorithm.lineage.check(manifest.lineage, what)
            if algorithm.frozen and policy.version not in library.versions:  # the same network with another edit
                raise WeightsError(f"{what}: learning began with {library.versions[0]}, not with {policy.version}")
        else:
            library.add(first, make_manifest(first, policy.version, lineage=algorithm.lineage))
            library.approve(policy.version, "training began with these weights")
        return library
    except BaseException:
        library.close()
        raise


def _open_learner(
    parts: _Parts,
    library: WeightsLibrary,
    source: EpisodeSource,
    policy: Policy,
    algorithm: str,
    made: Algorithm,
    config: LearnerConfig | None,
) -> Learner:
    """Return the learner as it was left; where its state is damaged or does not fit, it begins with what drives.

    ``made`` is the rule ``algorithm`` for ``policy``.
    """

    def begin(learner: Learner) -> str:
        learner.go_back(*library.get(library.current))
        return f"training begins anew from {library.current}"

    ready = [made]

    def make() -> Learner:
        rule = ready.pop() if ready else make_algorithm(algorithm, policy)  # the first may be half restored
        return Learner(source, policy, rule, folder=parts.folder / TRAINING, config=config)

    learner = parts.open(
        (TRAINING,),
        make,
        "the training state",
        begin,
    )
    learner.promoted(library.current)
    return learner
