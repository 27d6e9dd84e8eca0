"""Write the files of examples/ into the pages that show them: a code host shows no included file.

python -m tests.docs.examples
"""

from __future__ import annotations

import re

from tests.docs.pages import PAGES, REPOSITORY

END = "<!-- end of example -->"
SHOWN = re.compile(
    rf"<!-- (examples/\S+\.py): written by python -m tests\.docs\.examples -->\n.*?{re.escape(END)}", re.DOTALL
)


def begin(path: str) -> str:
    """Return the line after which the file ``path`` is shown."""
    return f"<!-- {path}: written by python -m tests.docs.examples -->"


def with_examples(text: str) -> str:
    """Return the page with every example between its markers written anew."""

    def shown(found: re.Match[str]) -> str:
        code = (REPOSITORY / found[1]).read_text().rstrip()
        return f"{begin(found[1])}\n\n```py\n{code}\n```\n\n{END}"

    return SHOWN.sub(shown, text)


def examples_in(text: str) -> list[str]:
    """Return the paths of the examples that a page shows."""
    return [found[1] for found in SHOWN.finditer(text)]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_examples(page.read_text()))
