"""The page of the command line is what the code says."""

from engram.app.reference import TARGET, page


def test_the_page_is_up_to_date():
    assert TARGET.read_text() == page(), "run: python -m engram.app.reference"


def test_some_rows_are_known_by_heart():
    rows = page().splitlines()
    assert "### engram memory query" in rows
    assert any(row.startswith("| `QUESTION` |") for row in rows)
    assert any(row.startswith("| `--dataset` | required |") for row in rows)
    assert any(row.startswith("| `--steps` | `12000` |") for row in rows)
