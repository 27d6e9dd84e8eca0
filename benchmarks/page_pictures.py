"""Pictures of the page for the documentation, taken from a real run: ``python -m engram.benchmarks.page_pictures``.

Starts the node set in simulation with a fresh memory, gives instructions and asks the memory through the page as a
visitor would, and writes ``demo.gif`` and ``page_*.png``. Needs Chromium.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image

from engram.benchmarks.chromium import Chromium, find_chromium, wait
from engram.core.errors import EngramError, InvalidInputError
from engram.core.ports import free_port

DESKTOP, PHONE = (1400, 900), (390, 844)
PICTURE_COLORS, MOVIE_COLORS = 256, 128
STARTUP_S, EPISODE_S = 420.0, 120.0


@dataclass(frozen=True)
class PicturesConfig:
    """What is shown, and where the pictures go."""

    folder: Path = Path("docs/img")
    """Folder for the pictures."""
    instructions: tuple[str, ...] = ("stack the red cube on the blue cube", "put the red cube in the bin")
    """What the robot does in the movie, one after the other."""
    question: str = "where is the red cube?"
    """What the memory is asked in the movie."""
    played_s: float = 0.12
    """Time that the movie shows a frame for [s]."""
    width: int = 840
    """Width of the movie [px]."""
    frames: int = 45
    """Most frames of one instruction; more are thinned out."""


@contextmanager
def simulation(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``engram up sim`` with its page at ``port`` and everything that it stores below ``folder``."""
    command = [sys.executable, "-m", "engram.app.cli", "up", "sim", f"port:={port}"]
    with (folder / "nodes.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | {"HOME": str(folder)}, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


class Movie:
    """Frames of a browser's page, thinned and written as an animated GIF."""

    def __init__(self, browser: Chromium, config: PicturesConfig) -> None:
        self._browser, self._config = browser, config
        self._frames: list[Image.Image] = []

    def shoot(self, times: int = 1) -> None:
        """Take the page as it is now, shown for ``times`` frames."""
        picture = _decoded(self._browser.picture())
        size = (self._config.width, round(self._config.width * picture.height / picture.width))
        self._frames += [picture.resize(size, Image.Resampling.LANCZOS)] * times

    def shoot_until(self, words: str, seconds: float) -> None:
        """Take frame after frame, as fast as the browser gives them, until the page says ``words``."""
        before, end = len(self._frames), time.monotonic() + seconds
        while words not in self._browser.text() and time.monotonic() < end:
            self.shoot()
            if len(self._frames) > 1 and self._frames[-1].tobytes() == self._frames[-2].tobytes():
                self._frames.pop()  # nothing moved yet
        taken = self._frames[before:]
        self._frames[before:] = taken[:: max(1, -(-len(taken) // self._config.frames))]

    def write(self, path: Path) -> None:
        """Write the movie with one palette for all frames, so that what stands still costs nothing."""
        palette = self._frames[len(self._frames) // 2].quantize(MOVIE_COLORS)
        frames = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in self._frames]
        frames[0].save(path, save_all=True, append_images=frames[1:], loop=0, optimize=True,
                       duration=round(1000 * self._config.played_s))  # fmt: skip


def _decoded(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def _save(browser: Chromium, path: Path) -> None:
    _decoded(browser.picture()).quantize(PICTURE_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path, flush=True)


def take(browser: Chromium, url: str, config: PicturesConfig) -> None:
    """Visit the page and take all pictures."""
    movie = Movie(browser, config)
    browser.open(url)
    wait(lambda: _is_active(browser), "the policy node is active", STARTUP_S, browser.text)
    browser.open_tab("Drive")
    for instruction in config.instructions:
        browser.type(instruction, "Instruction")
        movie.shoot(4)
        browser.click("Do it")
        movie.shoot_until(f'"{instruction}": succeeded after', EPISODE_S)
        movie.shoot(6)
    _save(browser, config.folder / "page_drive.png")
    browser.open_tab("Memory")
    movie.shoot(3)
    browser.type(config.question, "Question", submit=True)
    browser.sees("confidence")
    movie.shoot(6)
    browser.click("Show the red cube in 3D")
    browser.sees("Picked:")
    time.sleep(2.0)
    movie.shoot(14)
    movie.write(config.folder / "demo.gif")
    _save(browser, config.folder / "page_memory.png")
    _visit_others(browser, url, config.folder)


def _is_active(browser: Chromium) -> bool:
    """Tell whether the policy node, which is brought up last, takes instructions."""
    if "Nodes" in browser.text():
        browser.open_tab("Nodes")
    time.sleep(1.0)
    return re.search(r"policy_node\s+active", browser.text()) is not None


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Tell whether the page is served; EngramError when the nodes have ended instead."""
    if process.poll() is not None:
        raise EngramError(f"the nodes ended with exit code {process.returncode} before the page was there")
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _visit_others(browser: Chromium, url: str, folder: Path) -> None:
    for tab in ("Policy", "Learning", "Nodes"):
        browser.open_tab(tab)
        time.sleep(1.5)
        _save(browser, folder / f"page_{tab.lower()}.png")
    browser.open_tab("Memory")
    age = browser.js("Number([...document.querySelectorAll('.mantine-Slider-thumb')].at(-1).ariaValueMin)") or -10.0
    browser.type(f"{0.25 * age:.1f}", "Seconds from now", submit=True, sent=b"")
    browser.sees("Back to now")
    time.sleep(2.0)
    _save(browser, folder / "page_past.png")
    browser.click("Back to now")
    browser.click("STOP")
    browser.open_tab("Drive")
    browser.sees("STOPPED")
    _save(browser, folder / "page_stopped.png")
    browser.click("Release stop")
    browser.resize(*PHONE)
    browser.open(url)
    browser.sees("STOP")
    time.sleep(8.0)
    _save(browser, folder / "page_phone.png")


def main(config: PicturesConfig) -> None:
    """Take all pictures."""
    path = find_chromium()
    if path is None:
        raise InvalidInputError("no chromium on this machine: apt-get install chromium")
    config.folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://localhost:{port}"
    with tempfile.TemporaryDirectory() as folder, simulation(port, Path(folder)) as process:
        wait(lambda: _answers(url, process), f"{url} answers", STARTUP_S)
        browser = Chromium(path, Path(folder) / "browser", DESKTOP)
        try:
            take(browser, url, config)
        finally:
            browser.close()


if __name__ == "__main__":
    main(tyro.cli(PicturesConfig))
