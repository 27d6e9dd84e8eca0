"""The documentation builds without a warning, and its pages load nothing from another server."""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import REPOSITORY

LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?://[^\" >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not LOADED.findall(page.read_text()), page


def test_the_search_finds_a_class_and_a_launch_argument(site):
    index = (site / "search" / "search_index.json").read_text()
    assert "RobotMemory" in index and "params_file" in index
