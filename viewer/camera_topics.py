"""Which cameras the page shows: those of the robot's namespace, found by the names of their topics."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_CAMERAS = 16
"""Cameras that the page shows at most."""
TOPIC = re.compile(r"camera/([^/]+)/color/image_raw")


def cameras_among(topics: Iterable[str], namespace: str) -> list[str]:
    """Return the cameras whose color images are among ``topics`` and in ``namespace``.

    >>> cameras_among(["/r1/camera/wrist/color/image_raw", "/camera/front/color/image_raw", "/r1/tf"], "/r1")
    ['wrist']
    """
    base = namespace.rstrip("/") + "/"
    found = (TOPIC.fullmatch(topic.removeprefix(base)) for topic in topics if topic.startswith(base))
    return [match[1] for match in found if match is not None]
