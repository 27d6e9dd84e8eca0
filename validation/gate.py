"""The gate's decision: may a candidate drive in place of the policy that drives now? Pure statistics.

Both policies run the same scenes. On every task the gate tests two things at once and after every pair of episodes:
that the candidate is not worse by ``margin`` or more, and that it is worse. Both are tested on successes, and on
progress: how near an episode came to success, 0 to 1 (partial credit; arXiv:2603.13616 tests on it alone). Over all
tasks together it tests how much the safety filter has to intervene: that this is less than ``breach_margin`` more, and
that it is more than ``breach_margin`` more. A candidate that succeeds more often may come to a limit a little more
often. The gate promotes when the first is shown of everything, and rejects when the second is shown of anything.
Promoting needs every test, so each may use the whole error rate (intersection-union test, Berger 1982); rejecting needs
one of many, so they share theirs (Bonferroni). The tests hold at any time they are looked at:
:class:`engram.core.betting.MeanTest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engram.core.betting import MeanTest
from engram.core.errors import InvalidInputError, unknown_name

OPEN, PROMOTE, REJECT, NOT_SHOWN = "open", "promote", "reject", "not_shown"
GAIN_DIGITS = 4
"""Digits after the point to which a difference of progress is kept, and tested."""
SAFETY = "safety"
"""Name of the test that no task has: whether the safety filter has to intervene more."""


@dataclass(frozen=True)
class GateConfig:
    """How strict the gate is."""

    margin: float = 0.1
    """A success rate that is lower by so much is worse."""
    progress_margin: float = 0.15
    """A mean progress that is lower by so much is worse."""
    false_promotion: float = 0.01
    """Probability that a candidate is promoted that is worse by a margin on some task, at most."""
    false_rejection: float = 0.05
    """Probability that a candidate is rejected that is as good on every task and within ``breach_margin``, at most."""
    breach_margin: float = 0.05
    """In such a larger share of the control steps may the safety filter intervene, where an episode in which it refused
    a command counts whole. A candidate that is shown to exceed this is rejected; one that is not shown to stay below it
    is not promoted."""
    budget: int = 200
    """Pairs of episodes a task; what is not shown then, is not shown."""

    def __post_init__(self) -> None:
        for name in ("margin", "progress_margin", "false_promotion", "false_rejection", "breach_margin"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise InvalidInputError(f"GateConfig.{name}: {getattr(self, name)}, expected between 0 and 1")
        if self.budget < 1:
            raise InvalidInputError(f"GateConfig.budget: {self.budget}, expected 1 or more")


@dataclass
class TaskEvidence:
    """What was seen on one task."""

    task: str
    pairs: int = 0
    candidate: int = 0
    """Successes of the candidate."""
    approved: int = 0
    """Successes of the policy that drives, in the same scenes."""
    not_worse: bool = False
    """Shown: the candidate is not worse by the margin."""
    worse: bool = False
    """Shown: the candidate is worse."""
    outcomes: str = ""
    """A character a pair, in order: b both succeeded, c the candidate alone, a the other alone, - neither."""
    candidate_progress: float = 0.0
    """Sum over the pairs of how near the candidate came to success, each 0 to 1."""
    approved_progress: float = 0.0
    """Of the policy that drives, in the same scenes."""
    gains: list[float] = field(default_factory=list)
    """Progress of the candidate minus that of the other, pair by pair."""


class Gate:
    """Takes pairs of episodes and decides.

    Args:
        tasks: names, each once.
        config: how strict.
    """

    def __init__(self, tasks: Sequence[str], config: GateConfig | None = None) -> None:
        if not tasks or len(set(tasks)) != len(tasks):
            raise InvalidInputError(f"Gate.tasks: {', '.join(tasks) or '(none)'}, expected one or more, each once")
        self.config = config or GateConfig()
        self.tasks = {task: TaskEvidence(task) for task in tasks}
        self.breaches = [0.0, 0.0]  # sums over the episodes: the candidate's, those of the policy that drives
        self.pairs, self.idle_pairs = 0, 0
        margins = (self.config.margin, self.config.progress_margin)
        self._not_worse = {
            name: MeanTest(1.0 - margin) for task in tasks for name, margin in zip(_names(task), margins, strict=True)
        }
        self._worse = {name: MeanTest(1.0) for name in self._not_worse}
        self._worse[SAFETY] = MeanTest(1.0 + self.config.breach_margin)
        self._safe, self._acts = MeanTest(1.0 - self.config.breach_margin), MeanTest(1.0)

    def add(
        self,
        task: str,
        candidate: bool,
        approved: bool,
        breaches: tuple[float, float] = (0.0, 0.0),
        progress: tuple[float, float] | None = None,
    ) -> None:
        """Take what came of one scene.

        Args:
            task: one of the gate's.
            candidate: whether the candidate succeeded.
            approved: whether the policy that drives did.
            breaches: how much the safety filter had to intervene with either, 0 to 1.
            progress: how near each came to success, 0 to 1; None: 1 where it succeeded, else 0.
        """
        if task not in self.tasks:
            raise unknown_name("task of the gate", task, self.tasks)
        seen, gain = self.tasks[task], float(candidate) - float(approved)
        seen.pairs, self.pairs = seen.pairs + 1, self.pairs + 1
        seen.candidate, seen.approved = seen.candidate + candidate, seen.approved + approved
        seen.outcomes += ("-a", "cb")[candidate][approved]
        new, old = progress or (float(candidate), float(approved))
        seen.candidate_progress, seen.approved_progress = seen.candidate_progress + new, seen.approved_progress + old
        seen.gains.append(round(new - old, GAIN_DIGITS))
        margins = (self.config.margin, self.config.progress_margin)
        for name, more, margin in zip(_names(task), (gain, seen.gains[-1]), margins, strict=True):
            self._not_worse[name].add(more + margin)
            self._worse[name].add(-more)
        calmer = round(breaches[1] - breaches[0], GAIN_DIGITS)
        self.breaches = [count + had for count, had in zip(self.breaches, breaches, strict=True)]
        self._safe.add(calmer + self.config.breach_margin)
        self._worse[SAFETY].add(-calmer - self.config.breach_margin)
        seen.not_worse = all(self._not_worse[name].shown(self.config.false_promotion) for name in _names(task))
        seen.worse = any(self._is_worse(name) for name in _names(task))

    def add_idle(self, candidate: bool, idle: bool) -> None:
        """Take what came of one scene for the candidate, and for a robot that stands still."""
        self.idle_pairs += 1
        self._acts.add(float(candidate) - float(idle))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Tasks on which more pairs are wanted: those that are not shown yet; all, where none of them is left and it is
        not shown yet that the candidate is safe, or that it acts."""
        left = [seen for seen in self.tasks.values() if seen.pairs < self.config.budget]
        if all(seen.not_worse for seen in self.tasks.values()) and not (self._is_safe() and self.acts):
            return tuple(seen.task for seen in left)
        return tuple(seen.task for seen in left if not seen.not_worse)

    @property
    def acts(self) -> bool:
        """Whether it is shown that the candidate does more than a robot that stands still."""
        return self._acts.shown(self.config.false_promotion)

    @property
    def decision(self) -> str:
        """``open``, ``promote``, ``reject``, or ``not_shown`` where the budget was used up."""
        if any(self._is_worse(name) for name in self._worse):
            return REJECT
        if all(seen.not_worse for seen in self.tasks.values()) and self._is_safe() and self.acts:
            return PROMOTE
        return OPEN if self.wanted else NOT_SHOWN

    @property
    def reason(self) -> str:
        """Say why, naming tasks."""
        c = self.config
        if self.decision == REJECT:
            named = [self._rates(seen) for task, seen in self.tasks.items() if seen.worse]
            if self._is_worse(SAFETY):
                named.append(f"the safety filter intervened {self._interventions()}")
            return f"worse: {'; '.join(named)}"
        if self.decision == PROMOTE:
            return f"not worse by {c.margin:g} or more on any of {len(self.tasks)} tasks"
        if self.decision == NOT_SHOWN:
            named = [self._rates(seen) for seen in self.tasks.values() if not seen.not_worse]
            named += [f"that the safety filter intervenes no more: {self._interventions()}"] * (not self._is_safe())
            named += ["that it does more than a robot that stands still"] * (not self.acts)
            return f"not shown within {c.budget} pairs a task: {'; '.join(named)}"
        return f"{len(self.wanted)} of {len(self.tasks)} tasks are open"

    def report(self) -> dict[str, Any]:
        """Return everything as JSON keeps it."""
        return {
            "decision": self.decision,
            "reason": self.reason,
            "pairs": self.pairs,
            "idle_pairs": self.idle_pairs,
            "breaches": {
                "candidate": round(self.breaches[0], GAIN_DIGITS),
                "approved": round(self.breaches[1], GAIN_DIGITS),
            },
            "tasks": [asdict(seen) for seen in self.tasks.values()],
            "config": asdict(self.config),
        }

    def _is_worse(self, name: str) -> bool:
        return self._worse[name].shown(self.config.false_rejection / len(self._worse))

    def _is_safe(self) -> bool:
        return self._safe.shown(self.config.false_promotion)

    def _interventions(self) -> str:
        new, old = (total / max(1, self.pairs) for total in self.breaches)
        return f"in {new:.1%} of the control steps, before in {old:.1%}"

    @staticmethod
    def _rates(seen: TaskEvidence) -> str:
        means = [total / max(1, seen.pairs) for total in (seen.candidate_progress, seen.approved_progress)]
        rates = f"{seen.task} {seen.candidate} of {seen.pairs}, before {seen.approved}"
        return f"{rates} (progress {means[0]:.2f}, before {means[1]:.2f})"


def _names(task: str) -> tuple[str, str]:
    """Return the names of the tests on the successes in ``task``, and on its progress."""
    return task, f"{task}: progress"
