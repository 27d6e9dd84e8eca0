"""The documentation builds without a warning, and its pages load nothing from another server."""

import re
import subprocess
import sys

import pytest

from tests.docs.examples import examples_in
from tests.docs.pages import PAGES, REPOSITORY

LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?://[^\" >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]  # --quiet would let warnings pass
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not LOADED.findall(page.read_text()), page


def test_beside_each_example_is_a_link_to_it_that_works_in_the_repository_and_in_the_site(site):
    shown = [(page, path.removeprefix("examples/")) for page in PAGES for path in examples_in(page.read_text())]
    assert shown
    for page, name in shown:
        assert f"](../../examples/{name})" in page.read_text(), f"{page}: names no file to copy"
        assert (page.parent / "../../examples" / name).is_file() and (site / "examples" / name).is_file()
        built = site / page.relative_to(REPOSITORY / "docs").with_suffix(".html")
        assert f'href="../examples/{name}"' in built.read_text()


def test_the_search_finds_a_class_and_a_launch_argument(site):
    index = (site / "search" / "search_index.json").read_text()
    assert "RobotMemory" in index and "params_file" in index
