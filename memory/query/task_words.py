"""Whether words name a task: "opened the drawer" names the one that was told as "please open the top drawer".

All words count, as people mean them: a red cube is no green one, and the red cube on the green one is not the green one
on the red. Similarity of meaning cannot tell these apart, and takes opening for closing.
"""

from __future__ import annotations

from collections.abc import Mapping

_STOP = frozenset({
    "a", "all", "an", "and", "any", "again", "at", "away", "back", "been", "by", "down", "for", "from", "in", "inside",
    "into", "it", "its", "just", "me", "my", "of", "off", "on", "onto", "out", "over", "please", "robot", "that", "the",
    "them", "then", "there", "this", "to", "up", "was", "were", "with", "you", "your",
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


def means(text: str, told: str) -> bool:
    """Whether ``text`` names the task that was ``told``: by its verb, and by all its other words in their order.

    >>> means("put the cube into the bin", "pick up the red cube and put it in the bin")
    True
    >>> means("closed the drawer", "open the drawer")
    False
    """
    wanted, said = _content(text), _content(told)
    if not wanted or wanted[0] not in said:
        return False
    rest = iter(said)
    return all(word in rest for word in wanted[1:])


def _content(text: str) -> list[str]:
    words = text.lower().replace("_", " ").replace(",", " ").replace(".", " ").split()
    return [_stem(word) for word in words if word not in _STOP]


def _stem(word: str) -> str:
    """Return what the forms of a word have in common.

    >>> [_stem(word) for word in ("dropped", "pressing", "cubes", "moved", "took", "red")]
    ['put', 'press', 'cub', 'put', 'pick', 'red']
    """
    word = _FORMS.get(word, word)
    for end in ("ing", "ed"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    return _STEMS.get(word.removesuffix("e"), word.removesuffix("e"))


_STEMS = {verb.removesuffix("e"): same.removesuffix("e") for verb, same in _SAME.items()}
