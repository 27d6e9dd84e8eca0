"""Every example is small, public and explained."""

import ast
import re
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_a_screen_uses_public_names_and_says_how_it_is_run(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    tree = ast.parse(text)
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", ""), *(alias.name for alias in node.names))
    ]
    private = [name for name in imported if any(part.startswith("_") for part in (name or "").split("."))]
    used = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)]
    assert not private + used
    assert re.search(rf"examples\.{path.stem}:\w+", ast.get_docstring(tree) or ""), "how is it run?"


def test_there_is_an_example_of_each_part():
    assert {path.stem for path in EXAMPLES} >= {"task", "detector", "world", "sequence_memory", "node", "algorithm"}
