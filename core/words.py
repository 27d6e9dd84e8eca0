"""How long words may be: what a person asks of the robot, or of its memory, and names: of frames, and made of words."""

from __future__ import annotations

import hashlib

from engram.core.errors import InvalidInputError

WORDS_MAX = 1000
"""Longest words of a goal or a question [characters]: what is read word by word, and published with every step."""
NAME_MAX = 100
"""Longest name that is made of words [characters]."""
FRAME_MAX = 256
"""Longest name of a tf frame [characters]: errors repeat it, and it is kept for as long as the process runs."""
_DIGEST = 8


def check_words(name: str, words: str) -> None:
    """Raise InvalidInputError, which calls the field ``name``, for ``words`` longer than ``WORDS_MAX``."""
    if len(words) > WORDS_MAX:
        raise InvalidInputError(f"{name}: {len(words)} characters, expected at most {WORDS_MAX}")


def check_frame(name: str, frame: str) -> None:
    """Raise InvalidInputError, which calls the field ``name``, for a ``frame`` longer than ``FRAME_MAX``."""
    if len(frame) > FRAME_MAX:
        raise InvalidInputError(f"{name}: {len(frame)} characters, expected at most {FRAME_MAX}")


def is_encodable(text: str) -> bool:
    r"""Return whether ``text`` can be written as UTF-8: one with half of a surrogate pair cannot.

    >>> is_encodable("W\u00fcrfel"), is_encodable("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def short_name(words: str) -> str:
    """Return ``words`` as a name of at most ``NAME_MAX`` characters, all printable; the same words, the same name.

    What is longer, or not printable, is cut and ends in a digest, by which two long names stay apart.

    >>> short_name("put the red cube in the bin")
    'put the red cube in the bin'
    """
    if len(words) <= NAME_MAX and words.isprintable():
        return words
    digest = hashlib.sha256(words.encode(errors="replace")).hexdigest()[:_DIGEST]
    shown = "".join(one if one.isprintable() else " " for one in words[: NAME_MAX - _DIGEST - 2])
    return f"{shown}… {digest}"
