"""The pages that show a file of examples/ show it as it is."""

import pytest

from tests.docs.examples import END, begin, examples_in, with_examples
from tests.docs.pages import PAGES, name

SHOWING = [page for page in PAGES if examples_in(page.read_text())]


@pytest.mark.parametrize("page", SHOWING, ids=name)
def test_the_page_is_up_to_date(page):
    assert page.read_text() == with_examples(page.read_text()), "run: python -m tests.docs.examples"


def test_the_pages_show_their_examples():
    shown = {path for page in SHOWING for path in examples_in(page.read_text())}
    names = ("task", "robot", "camera", "detector", "sequence_memory", "algorithm")
    assert shown == {f"examples/{name}.py" for name in names}


def test_what_stands_between_the_markers_is_replaced_by_the_file():
    page = f"before\n{begin('examples/camera.py')}\nwas there\n{END}\nafter"
    written = with_examples(page)
    assert "was there" not in written and "PANDA_2F85" in written and written.endswith(f"```\n\n{END}\nafter")
