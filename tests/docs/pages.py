"""The pages of the documentation and the code blocks in them."""

from __future__ import annotations

import re
from pathlib import Path

from mktestdocs.__main__ import grab_code_blocks

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
PAGES = [README, REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
"""README, CONTRIBUTING and every page of docs/."""

SIZES = {
    r"episodes=\d+": "episodes=1",
    r"updates=\d[\d_]*": "updates=2",
    r"steps=\d[\d_]*": "steps=2",
}
"""What a page shows at full size and a test runs at the smallest."""


def name(page: Path) -> str:
    """Return the path of a page in the repository, to name its tests."""
    return str(page.relative_to(REPOSITORY))


def python_code(page: Path) -> str:
    """Return the Python blocks of a page as one program, with small sizes; blank where it has none."""
    code = "\n".join(grab_code_blocks(page.read_text(), lang="python"))
    for pattern, small in SIZES.items():
        code = re.sub(pattern, small, code)
    return code.strip()


def shell_lines(page: Path) -> list[str]:
    """Return the commands in the ``bash`` blocks of a page: continued lines joined, comments left out."""
    text = "\n".join(grab_code_blocks(page.read_text(), lang="bash")).replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]
