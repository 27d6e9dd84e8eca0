"""Asking somebody who may not answer. No ROS."""

from __future__ import annotations

import time
from collections.abc import Callable

from engram.runtime.episode_report import LoopError

STOPPED = "safety/stopped"
"""Topic on which the safety node tells whether a stop is latched."""


def ask_again[Pending, Answer](
    send: Callable[[], Pending],
    answer: Callable[[Pending, float, str], Answer],
    forget: Callable[[Pending], object],
    patience_s: float,
    timeout_s: float,
    what: str,
) -> Answer:
    """Return the answer to what is sent again each time that there was none for ``patience_s``.

    Args:
        send: sends it.
        answer: waits so long for an answer to the thing that is named; raises LoopError if there is none.
        forget: is told what is not waited for any more.
        patience_s, timeout_s: longest wait for one answer, and in all [s].
        what: names it in errors.

    Raises:
        LoopError: there was no answer within ``timeout_s``.
    """
    end = time.monotonic() + timeout_s
    while True:
        pending = send()
        try:
            return answer(pending, min(patience_s, end - time.monotonic()), what)
        except LoopError:
            forget(pending)
            if not time.monotonic() <= end:
                raise LoopError(f"{what}: not within {timeout_s:g} s") from None
