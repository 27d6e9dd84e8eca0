"""Notices of libraries that say nothing to our users."""

from __future__ import annotations

import logging
import os
import warnings


def hush_datasets() -> None:
    """Call before LeRobot's datasets are imported: no page about video decoders (ours hold images), no bar a file."""
    logging.getLogger("lerobot.utils.import_utils").setLevel(logging.ERROR)
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    warnings.filterwarnings("ignore", "Cannot enable progress bars")  # LeRobot tries to, for its own bars
