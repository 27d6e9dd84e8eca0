"""Whether words name a task: "opened the drawer" names the one that was told as "please open the top drawer".

All words count, as people mean them: a red cube is no green one, the red cube on the green one is not the green one on
the red, and off is not on. Similarity of meaning cannot tell these apart, and takes opening for closing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

_STOP = frozenset({
    "a", "all", "an", "and", "any", "again", "at", "away", "back", "been", "but", "by", "for", "it", "its", "just",
    "me", "my", "of", "over", "please", "robot", "that", "the", "them", "then", "there", "this", "was", "were", "with",
    "you", "your",
})  # fmt: skip
"""Words that tell no task from another."""
_FORMS: Mapping[str, str] = {
    "took": "take", "taken": "take", "taking": "take", "brought": "bring", "went": "go", "gone": "go", "goes": "go",
    "going": "go", "did": "do", "done": "do", "doing": "do", "laid": "lay", "got": "get", "held": "hold",
    "swept": "sweep", "gave": "give", "given": "give",
    "threw": "throw", "thrown": "throw", "hid": "hide", "hidden": "hide",
}  # fmt: skip
"""Forms of verbs that no rule makes -> the verb."""
_SAME: Mapping[str, str] = {
    "grasp": "pick", "grab": "pick", "take": "pick", "lift": "pick", "place": "put", "lay": "put", "drop": "put",
    "move": "put", "stack": "put", "push": "press", "shut": "close", "grey": "gray",
}  # fmt: skip
"""Words that mean the same of a task."""
_WAYS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("on", "onto", "upon"), frozenset({"on"})), "off": frozenset({"off"}),
    **dict.fromkeys(("in", "into", "inside"), frozenset({"in"})), "out": frozenset({"out"}),
    "from": frozenset({"out", "off"}), "to": frozenset({"to", "in", "on"}),
    "up": frozenset({"up"}), "down": frozenset({"down"}),
}  # fmt: skip
"""Words that say which way; two that share a meaning say the same."""
_OPPOSITE: Mapping[str, frozenset[str]] = {
    "on": frozenset({"off"}), "off": frozenset({"on"}), "in": frozenset({"out"}), "out": frozenset({"in"}),
    "to": frozenset({"out", "off"}), "up": frozenset({"down"}), "down": frozenset({"up"}),
}  # fmt: skip
_IDLE: Mapping[str, frozenset[str]] = {
    "up": frozenset({"pick", "tak", "lift", "grab", "stack", "pil", "clean", "wip", "open"}),
    "down": frozenset({"put", "plac", "lay", "set", "drop", "press", "wip"}),
    "on": frozenset({"press", "push", "pull", "tap", "knock"}),
}
"""Ways that add nothing to these verbs: to pick up is to pick. The verbs are without their last e."""
_NOT = frozenset({"not", "no", "never", "without", "cannot", "dont"})
_DETERMINERS = frozenset({"the", "a", "an", "my", "your", "its", "this", "that", "these", "those", "all", "both"})
_JOINS = frozenset({"and", "then", "but", ","})
"""Words that begin another clause, but for a thing: "the cup and the bowl"."""
_WORD = re.compile(r"[^\s_,.;:!?]+|[,.;:!?]")


@dataclass(frozen=True)
class _Clause:
    """What is said of one verb: stems of words and ways, in their order."""

    words: tuple[str | frozenset[str], ...]
    loose: frozenset[int] = frozenset()  # which words are ways without a thing behind them: "turn the stove off"
    pronoun: bool = False

    def bound(self) -> list[str | frozenset[str]]:
        """Return the words that have their place in the order."""
        return [word for i, word in enumerate(self.words) if i not in self.loose]

    def turned(self) -> set[str]:
        """Return the verb and what goes its loose ways: in "take the cup out of the bin" the cup, not the bin."""
        bound = self.bound()
        end = next((i for i, word in enumerate(bound) if not isinstance(word, str)), len(bound))
        return {word for word in bound[:end] if isinstance(word, str)}

    def goes(self, other: _Clause) -> bool:
        """Whether it says of the verb of ``other`` which loose ways it goes."""
        verb = next((word for word in other.words if isinstance(word, str)), "")
        known = {verb} if self.pronoun else other.turned()
        return known <= set(self.words) and all(_among(other.words[i], self.words) for i in other.loose)


def means(text: str, told: str) -> bool:
    """Whether ``text`` names the task that was ``told``: by its verb, and by all its other words in their order.

    What was told not to be done is named only by words that say so as well.

    >>> means("put the cube into the bin", "pick up the red cube and put it in the bin")
    True
    >>> means("closed the drawer", "open the drawer"), means("turn the stove off", "turn on the stove")
    (False, False)
    """
    wanted, said = _clauses(text), _clauses(told)
    stems = any(isinstance(word, str) for part in wanted for clause in part for word in clause.words)
    return stems and all(map(_named, wanted, said))


def is_negation(word: str) -> bool:
    """Whether what follows ``word`` is not to be done."""
    return word in _NOT or word.endswith("n't")


def contradicts(text: str, told: str) -> bool:
    """Whether ``told`` goes the opposite way of ``text``.

    >>> contradicts("turned off the stove", "turn_on_stove"), contradicts("turned the stove", "turn_on_stove")
    (True, False)
    """
    wanted, said = ([word for clause in _clauses(one)[0] for word in clause.words] for one in (text, told))
    for way in wanted:
        if not isinstance(way, str) and not _among(way, said):
            opposite = frozenset[str]().union(*(_OPPOSITE[one] for one in way))
            if _among(opposite, said):
                return True
    return False


def _named(wanted: Sequence[_Clause], said: Sequence[_Clause]) -> bool:
    """Whether the clauses ``said`` have the first word of ``wanted``, the others in their order, and its loose ways."""
    words = [word for clause in wanted for word in clause.bound()]
    if not words:
        return True
    every = [word for clause in said for word in clause.words]
    rest = iter(every)
    ordered = _among(words[0], every) and all(any(_same(word, one) for one in rest) for word in words[1:])
    return ordered and all(not clause.loose or any(one.goes(clause) for one in said) for clause in wanted)


def _same(word: str | frozenset[str], other: str | frozenset[str]) -> bool:
    if isinstance(word, str) or isinstance(other, str):
        return word == other
    return not word.isdisjoint(other)


def _among(word: str | frozenset[str], words: Sequence[str | frozenset[str]]) -> bool:
    return any(_same(word, one) for one in words)


@lru_cache(maxsize=4096)
def _clauses(text: str) -> tuple[list[_Clause], list[_Clause]]:
    """Return the clauses of ``text``: what is to be done, and what is not."""
    parts: tuple[list[_Clause], list[_Clause]] = ([], [])
    said, negated = list[str](), False
    words = _WORD.findall(text.lower().replace("\u2019", "'"))
    for i, word in enumerate(words):
        follows = words[i + 1] if i + 1 < len(words) else ""
        no = is_negation(word)
        if no or word in ".;:!?" or (word in _JOINS and follows not in _DETERMINERS):
            parts[negated].append(_clause(said))
            said, negated = [], no
        elif word != ",":
            said.append(word)
    parts[negated].append(_clause(said))
    return parts


def _clause(said: Sequence[str]) -> _Clause:
    """Return the clause that the words ``said`` are."""
    kept = [i for i, word in enumerate(said) if word not in _STOP]
    verb = next((i for i in kept if said[i] not in _WAYS), -1)
    words, loose = list[str | frozenset[str]](), set[int]()
    for at, i in enumerate(kept):
        word = said[i]
        if word not in _WAYS:
            words.append(_stem(word))
            continue
        behind = said[kept[at + 1]] if at + 1 < len(kept) else ""
        is_loose = i == verb + 1 or not behind or behind in _WAYS
        if is_loose and verb >= 0 and _base(said[verb]) in _IDLE.get(word, ()):
            continue
        if is_loose:
            loose.add(len(words))
        words.append(_WAYS[word])
    return _Clause(tuple(words), frozenset(loose), not {"it", "them"}.isdisjoint(said))


def _stem(word: str) -> str:
    """Return what the forms of a word have in common.

    >>> [_stem(word) for word in ("dropped", "pressing", "cubes", "moved", "took", "red")]
    ['put', 'press', 'cub', 'put', 'pick', 'red']
    """
    base = _base(word)
    return _STEMS.get(base, base)


def _base(word: str) -> str:
    """Return a word without its ending and its last e."""
    word = _FORMS.get(word, word)
    for end in ("ing", "ed"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    return word.removesuffix("e")


_STEMS = {verb.removesuffix("e"): same.removesuffix("e") for verb, same in _SAME.items()}
