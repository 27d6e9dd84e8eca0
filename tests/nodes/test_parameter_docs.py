"""The page of parameters says what the code says."""

from engram.nodes.parameter_docs import TARGET, document


def test_the_page_is_in_step_with_the_nodes() -> None:
    assert TARGET.read_text() == document(), "run: python -m engram.nodes.parameter_docs"


def test_every_parameter_is_explained_and_some_are_known_by_heart() -> None:
    text = document()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert all(len(row.rsplit("|", 2)[1].strip()) > 10 for row in rows), [r for r in rows if r.endswith("|  |")]
    assert "| `port` | `8080` | 1 .. 65535 | TCP port of the page. |" in rows
    assert any(row.startswith("| `safety.stale_after_s` | `0.5` |") for row in rows)
