"""Learning algorithms, one file each, chosen by name."""

from __future__ import annotations

from collections.abc import Callable

from engram.core.contracts import Policy
from engram.core.registry import resolve
from engram.learning.algorithms.contract import Algorithm


def _behavior_cloning(policy: Policy) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy  # torch takes seconds

    return clone_policy(policy)


def _advantage_cloning(policy: Policy) -> Algorithm:
    from engram.learning.algorithms.advantage_cloning import AdvantageCloning
    from engram.learning.algorithms.clone_policy import clone_policy

    return AdvantageCloning(clone_policy(policy))


def _edit_actor(policy: Policy) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy
    from engram.learning.algorithms.edit_actor import EditActor

    return EditActor(clone_policy(policy))


def _best_of_n(policy: Policy) -> Algorithm:
    from engram.learning.algorithms.best_of_n import BestOfN
    from engram.learning.algorithms.clone_policy import clone_policy

    return BestOfN(clone_policy(policy))


def _noise_steering(policy: Policy) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy
    from engram.learning.algorithms.noise_steering import NoiseSteering

    return NoiseSteering(clone_policy(policy))


ALGORITHMS: dict[str, Callable[[Policy], Algorithm]] = {
    "behavior_cloning": _behavior_cloning,
    "advantage_cloning": _advantage_cloning,
    "edit_actor": _edit_actor,
    "best_of_n": _best_of_n,
    "noise_steering": _noise_steering,
}
"""Name -> what makes it for a policy. All but the first judge what was done by critics, failures too."""


def make_algorithm(spec: str, policy: Policy) -> Algorithm:
    """Return the algorithm called ``spec`` for ``policy``: a name, or ``package.module:attribute`` of your own.

    Raises:
        UnknownNameError: there is no such name; lists those there are.
        InvalidInputError: the attribute cannot be imported or makes something else, or the policy cannot be trained so.
    """
    return resolve("learning algorithm", spec, ALGORITHMS, Algorithm, policy)  # type: ignore[type-abstract]


__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]
