"""A lifecycle node that does what a test says, and a log that keeps what it is told."""

from __future__ import annotations

from engram.runtime.managed_node import AFTER


class Answer[T]:
    """The answer to a request; without ``given`` it has not come yet."""

    def __init__(self, *given: T) -> None:
        self.given, self.dropped = list(given), False

    def done(self) -> bool:
        return bool(self.given)

    def result(self) -> T:
        return self.given[0]

    def drop(self) -> None:
        self.dropped = True


class ScriptedNode:
    """Answers at once, carries out transitions at once and notes them in ``journal``, until a test wants it else."""

    def __init__(self, name: str = "memory_node", journal: list[tuple[str, str]] | None = None) -> None:
        self.name, self.full_name, self.domain = name, f"/r2/{name}", 54
        self.there = True  # as far as DDS knows
        self.state = "unconfigured"
        self.answers = True
        self.fails = False  # to do a transition
        self.loses_transitions = False  # requests for them never arrive
        self.journal = [] if journal is None else journal
        self.questions: list[Answer[str]] = []
        self._under_way: tuple[Answer[bool], str] | None = None

    def state_is_told(self) -> bool:
        return self.there

    def takes_transitions(self) -> bool:
        return self.there

    def ask_state(self) -> Answer[str]:
        self.questions.append(Answer(self.state) if self.answers else Answer())
        return self.questions[-1]

    def ask_transition(self, step: str) -> Answer[bool]:
        self.journal.append((self.name, step))
        answer: Answer[bool] = Answer()
        if not self.loses_transitions:
            self._under_way = answer, step
            if self.answers:
                self.finish()
        return answer

    def finish(self) -> None:
        """End the transition under way."""
        assert self._under_way is not None
        answer, step = self._under_way
        if not self.fails:
            self.state = AFTER[step]
        answer.given.append(not self.fails)


class Said:
    """What a log was told, by its level."""

    def __init__(self) -> None:
        self.infos: list[str] = []
        self.warnings: list[str] = []
        self.errors: list[str] = []
        self.info, self.warning, self.error = self.infos.append, self.warnings.append, self.errors.append
