"""Puts examples/ into the built documentation, so that a link to an example works there as it does on a code host."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every example to the files of the site."""
    for path in sorted(EXAMPLES.glob("*.py")):
        files.append(File.generated(config, f"examples/{path.name}", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to examples, which leave docs/ in the repository, to the files in the site."""
    return markdown.replace("](../../examples/", "](../examples/")
