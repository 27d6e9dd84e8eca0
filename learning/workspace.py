"""A learner's folder: training state and weights beside the experience, gone on from after a restart.

What is there can be of another network or another lineage, for example when the learner is started with another policy.
It is then moved aside, and training begins anew with the experience that there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engram.core.contracts import Policy
from engram.core.errors import StoreError, StoreLockedError, UnknownNameError, WeightsError
from engram.learning.algorithms import Algorithm, make_algorithm
from engram.learning.experience.database import set_aside
from engram.learning.learner import EpisodeSource, Learner, LearnerConfig
from engram.learning.live import LiveRecord
from engram.learning.practised import Practised
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import compare_specs, make_manifest, tensor_specs

EXPERIENCE, TRAINING, PRACTICE = "experience", "training", "practice"
"""Folders of the robots' experience, of the training state, and of what was practised in simulation."""
PARTS = (TRAINING, PRACTICE, "weights", "live")
"""Folders that belong to one policy; the experience beside them does not."""


@dataclass(frozen=True)
class Workspace:
    """A learner, the library of its weights, and how they did on the robots."""

    learner: Learner
    library: WeightsLibrary
    live: LiveRecord
    practised: Practised
    moved_aside: str = ""
    """Why the folder's training state and weights were moved aside, and where to; empty: they were not."""


def open_workspace(
    folder: Path, source: EpisodeSource, policy: Policy, algorithm: str, config: LearnerConfig | None = None
) -> Workspace:
    """Return the learner that trains ``policy`` by ``algorithm`` in ``folder``, as it was left.

    Raises:
        UnknownNameError, InvalidInputError: see :class:`engram.learning.learner.Learner`.
        StoreLockedError: another process has the folder.
    """
    made = make_algorithm(algorithm, policy)
    try:
        return _open(folder, source, policy, made, config)
    except StoreLockedError:
        raise  # its writer is alive
    except (UnknownNameError, WeightsError, StoreError) as error:
        aside = set_aside(folder, PARTS)
        fresh = _open(folder, source, policy, make_algorithm(algorithm, policy), config)
        return Workspace(
            *(fresh.learner, fresh.library, fresh.live, fresh.practised),
            f"{error}; training state and weights lie in {aside} now",
        )


def _open(
    folder: Path, source: EpisodeSource, policy: Policy, algorithm: Algorithm, config: LearnerConfig | None
) -> Workspace:
    """Raise UnknownNameError, WeightsError or StoreError if what the folder holds is damaged or does not fit."""
    library = WeightsLibrary(folder / "weights")
    try:
        first = algorithm.weights()
        if library.current:
            data, manifest = library.get(library.current)
            what = f"{folder / 'weights'}: {library.current}"
            compare_specs(tensor_specs(data), tensor_specs(first), what)
            algorithm.lineage.check(manifest.lineage, what)
        learner = Learner(source, policy, algorithm, folder=folder / TRAINING, config=config)
        if not library.current:  # the weights that training began with can always be gone back to
            library.add(first, make_manifest(first, policy.version, lineage=algorithm.lineage))
            library.approve(policy.version, "training began with these weights")
        learner.promoted(library.current)
        return Workspace(learner, library, LiveRecord(folder / "live" / "outcomes.json"), Practised(folder / PRACTICE))
    except BaseException:
        library.close()
        raise
