"""Headless Chromium over the DevTools protocol: for the page's tests and its pictures."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from engram.app.doctor import BROWSERS

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-port=0"),
)
SELECT = "(input => { if (!input) return false; input.focus(); input.select(); return true; })"
LABELLED = """(label => {
  const found = [...document.querySelectorAll('label')].find(l => l.innerText.trim() === label);
  return found && found.closest('.mantine-Flex-root').querySelector('input:not([type=hidden])');
})"""


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome on this machine; None without one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def wait(condition: Callable[[], object], what: str, seconds: float = 90.0, then: Callable[[], str] = str) -> None:
    """Wait until ``condition`` holds; AssertionError with ``what`` and the text of ``then`` if it is not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}\n{then()}"
        time.sleep(0.2)


class Chromium:
    """One browser with one page of ``size`` (width, height) pixels."""

    def __init__(self, path: str, profile: Path, size: tuple[int, int] = (1400, 900)) -> None:
        self._process = subprocess.Popen(
            [path, *FLAGS, f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ports = profile / "DevToolsActivePort"
        wait(lambda: ports.is_file() and ports.read_text().count("\n") >= 1, "the browser starts")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports.read_text().split()[0]}/json") as answer:
            target = next(t for t in json.load(answer) if t["type"] == "page")
        self._socket = connect(target["webSocketDebuggerUrl"], max_size=None)
        self._ids = itertools.count(1)
        self._sent = b""  # what the page sent over its websocket, which lives in a worker of the page
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self.resize(*size)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := self._receive()).get("id") != number:
            pass
        return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=180))
        if message.get("method") == "Target.attachedToTarget":
            worker = {"sessionId": message["params"]["sessionId"], "method": "Network.enable"}
            self._socket.send(json.dumps({"id": next(self._ids), **worker}))
        elif message.get("method") == "Network.webSocketFrameSent":
            self._sent += base64.b64decode(message["params"]["response"]["payloadData"])
        return message

    def resize(self, width: int, height: int) -> None:
        """Make the page ``width`` x ``height`` pixels; below 600 wide it is a phone."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip

    def open(self, url: str) -> None:
        """Go to ``url``."""
        self.call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def text(self) -> str:
        """Return the text that a visitor reads."""
        return self.js("document.body ? document.body.innerText : ''") or ""

    def sees(self, *words: str) -> None:
        """Wait until all of ``words`` are on the page."""
        wait(lambda: all(w in self.text() for w in words), f"{words} on the page", then=self.text)

    def click(self, label: str) -> None:
        """Press the button with this label."""
        found = f"[...document.querySelectorAll('button')].find(b => b.innerText.trim() === {json.dumps(label)})"
        pressed = f"(b => b ? (b.click(), true) : false)({found})"
        wait(lambda: self.js(pressed), f"a button {label!r}", 20.0, self.text)

    def open_tab(self, label: str) -> None:
        """Show a tab: viser's dock listens to the pointer, not to clicks."""
        spot = self.js(
            "(t => t && (t.scrollIntoView(),"
            " (r => [r.x + r.width / 2, r.y + r.height / 2])(t.getBoundingClientRect())))"
            f"([...document.querySelectorAll('*')].filter(e => !e.children.length || e.matches('[role=tab]'))"
            f".findLast(e => e.innerText && e.innerText.trim() === {json.dumps(label)}))"
        )
        assert spot, f"no tab {label!r} in:\n{self.text()}"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    def type(self, words: str, label: str, submit: bool = False, sent: bytes | None = None) -> None:
        """Type into the field with this label, in place of what is there, and wait until the page has sent it.

        Args:
            words: what to type.
            label: of the field.
            submit: press Enter afterwards.
            sent: what the page sends of it; by default the words.
        """
        field = f"{LABELLED}({json.dumps(label)})"
        wait(lambda: self.js(f"{SELECT}({field})"), f"a field {label!r}", 20.0, self.text)
        self.call("Input.insertText", text=words)
        while (words.encode() if sent is None else sent) not in self._sent:
            self._receive()
        if submit:
            for kind in ("rawKeyDown", "char", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r" * (kind == "char"),
                          windowsVirtualKeyCode=13)  # fmt: skip

    def choose(self, option: str, label: str) -> None:
        """Choose ``option`` in the dropdown with this label."""
        field = f"{LABELLED}({json.dumps(label)})"
        wait(
            lambda: self.js(f"(i => i ? (i.focus(), i.click(), true) : false)({field})"), f"a dropdown {label!r}", 20.0
        )
        found = (
            f"[...document.querySelectorAll('[role=option]')].find(o => o.innerText.trim() === {json.dumps(option)})"
        )
        wait(lambda: self.js(f"(o => o ? (o.click(), true) : false)({found})"), f"an option {option!r}", 20.0)

    def value(self, label: str) -> str:
        """Return what stands in the field with this label."""
        return str(self.js(f"({LABELLED}({json.dumps(label)}) || {{}}).value"))

    def picture(self) -> bytes:
        """Return the page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the browser."""
        self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
