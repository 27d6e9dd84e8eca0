"""Judges the goal at hand by what the policy makes of it, with success classifiers. No ROS; one thread calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engram.core.contracts import FeaturePolicy, Policy
from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import Verdict
from engram.learning.rewards.contract import Moment, RewardSource
from engram.runtime.policy_runner import PolicyStep


class PolicyJudge:
    """Asks a reward source after each step of the policy.

    Args:
        source: judges by the policy's features.
        policy: returns what drives now.
    """

    def __init__(self, source: RewardSource, policy: Callable[[], Policy]) -> None:
        self._source, self._policy = source, policy
        self._goal: tuple[int, str] | None = None

    @classmethod
    def open(cls, folders: Sequence[str], policy: Callable[[], Policy]) -> PolicyJudge | None:
        """Return a judge by the classifiers in ``folders``, empty names aside; None where there are none.

        Raises:
            InvalidInputError: a folder holds no classifier.
        """
        named = tuple(filter(None, folders))
        if not named:
            return None
        from engram.learning.rewards.success_classifier import ClassifierVerdict  # torch

        try:
            return cls(ClassifierVerdict.load(named), policy)
        except StoreError as error:
            raise InvalidInputError(f"success_classifiers: {error}") from error

    def judge(self, step: PolicyStep) -> Verdict:
        """Return whether the goal of ``step``, which the policy has observed, is reached."""
        if (step.episode, step.instruction) != self._goal:
            self._goal = (step.episode, step.instruction)
            self._source.begin(step.instruction)
        policy = self._policy()
        seen = policy.features() if isinstance(policy, FeaturePolicy) else None
        return self._source.judge(Moment(step.observation.stamp_ns, step.episode, features=seen))
