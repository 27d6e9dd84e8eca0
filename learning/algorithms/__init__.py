"""Learning algorithms, one file each, chosen by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.registry import is_spec, resolve, split_options
from engram.learning.algorithms.contract import Algorithm

if TYPE_CHECKING:
    from engram.learning.algorithms.value_learning import ValueLearningConfig

TAKEOVER_COST = "takeover_cost"
"""Option of the algorithms with critics, as in ``edit_actor:takeover_cost=0.5``; see ``CriticConfig``."""


def _behavior_cloning(policy: Policy) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy  # torch takes seconds
    from engram.learning.algorithms.motion_edit import MotionEdit, frozen

    return MotionEdit(policy) if frozen(policy) else clone_policy(policy)


def _advantage_cloning(policy: Policy, takeover_cost: float = 0.0) -> Algorithm:
    from engram.learning.algorithms.advantage_cloning import AdvantageCloning
    from engram.learning.algorithms.clone_policy import clone_policy

    return AdvantageCloning(clone_policy(policy), _with_cost(takeover_cost))


def _edit_actor(policy: Policy, takeover_cost: float = 0.0) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy
    from engram.learning.algorithms.edit_actor import EditActor

    return EditActor(clone_policy(policy), _with_cost(takeover_cost))


def _best_of_n(policy: Policy, takeover_cost: float = 0.0) -> Algorithm:
    from engram.learning.algorithms.best_of_n import BestOfN
    from engram.learning.algorithms.clone_policy import clone_policy

    return BestOfN(clone_policy(policy), _with_cost(takeover_cost))


def _noise_steering(policy: Policy, takeover_cost: float = 0.0) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy
    from engram.learning.algorithms.noise_steering import NoiseSteering

    return NoiseSteering(clone_policy(policy), _with_cost(takeover_cost))


def _soft_actor_critic(policy: Policy, takeover_cost: float = 0.0) -> Algorithm:
    from engram.learning.algorithms.clone_policy import clone_policy
    from engram.learning.algorithms.soft_actor_critic import SoftActorCritic

    return SoftActorCritic(clone_policy(policy), _with_cost(takeover_cost))


def _with_cost(takeover_cost: float) -> ValueLearningConfig:
    from engram.learning.algorithms.critics import CriticConfig
    from engram.learning.algorithms.value_learning import ValueLearningConfig

    return ValueLearningConfig(critic=CriticConfig(takeover_cost=takeover_cost))


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "behavior_cloning": _behavior_cloning,
    "advantage_cloning": _advantage_cloning,
    "edit_actor": _edit_actor,
    "best_of_n": _best_of_n,
    "noise_steering": _noise_steering,
    "soft_actor_critic": _soft_actor_critic,
}
"""Name -> what makes it for a policy. All but the first judge what was done by critics, failures too."""


def make_algorithm(spec: str, policy: Policy) -> Algorithm:
    """Return the algorithm called ``spec`` for ``policy``: a name, or ``package.module:attribute`` of your own.

    A name may carry an option: ``edit_actor:takeover_cost=0.5``.

    Raises:
        UnknownNameError: there is no such name or option; lists those there are.
        InvalidInputError: the attribute cannot be imported or makes something else, or the policy cannot be trained so,
            or the algorithm takes no options, or none of such a value.
    """
    name, options = split_options(spec)
    offered = _offered(spec, name, options) if options else {}
    return resolve("learning algorithm", name, ALGORITHMS, Algorithm, policy, **offered)  # type: ignore[type-abstract]


def _offered(spec: str, name: str, options: str) -> dict[str, float]:
    """Return the ``options`` that ``spec`` gives algorithm ``name``."""
    takes = [one for one, make in ALGORITHMS.items() if TAKEOVER_COST in inspect.signature(make).parameters]
    if name not in takes:
        if name not in ALGORITHMS and not is_spec(name):
            raise unknown_name("learning algorithm", name, takes)
        raise InvalidInputError(f"learning algorithm {spec!r}: {name} takes no options; {', '.join(takes)} do")
    option, _, value = options.partition("=")
    if option != TAKEOVER_COST:
        raise unknown_name(f"option of learning algorithm {name}", option, (TAKEOVER_COST,))
    try:
        return {option: float(value)}
    except ValueError:
        raise InvalidInputError(f"learning algorithm {spec!r}: {option} {value!r}, expected a number 0..1") from None


__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]
