"""Fine-tuning a policy on its own experience: store and spool, replay, algorithms, candidate weights.

    from engram.learning import ExperienceStore, Learner, LearnerConfig
    from engram.policies import load_policy

    store, config = ExperienceStore("data/experience"), LearnerConfig(imitate_own=True)
    learner = Learner(store, load_policy("base"), algorithm="behavior_cloning", config=config)
    weights, manifest = learner.run(updates=1000)

Names are imported when they are first used: importing this is quick, and torch comes with the first algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.core.lazy import lazy

if TYPE_CHECKING:
    from engram.learning.algorithms import ALGORITHMS, Algorithm
    from engram.learning.experience.retention import ExperienceStoreConfig
    from engram.learning.experience.spool import Spool
    from engram.learning.experience.store import ExperienceStore
    from engram.learning.learner import Learner
    from engram.learning.learner_config import LearnerConfig

_MODULES = {
    "ALGORITHMS": "engram.learning.algorithms",
    "Algorithm": "engram.learning.algorithms",
    "ExperienceStore": "engram.learning.experience.store",
    "ExperienceStoreConfig": "engram.learning.experience.retention",
    "Learner": "engram.learning.learner",
    "LearnerConfig": "engram.learning.learner_config",
    "Spool": "engram.learning.experience.spool",
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "ExperienceStore",
    "ExperienceStoreConfig",
    "Learner",
    "LearnerConfig",
    "Spool",
]
__getattr__, __dir__ = lazy(__name__, _MODULES)
