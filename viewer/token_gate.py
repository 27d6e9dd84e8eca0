"""A door before the page: nothing is served to who comes from another web site or lacks the token.

It listens on the page's address, looks at the head of each connection's first request, and passes the bytes on to the
page, which listens on a loopback address that cannot be guessed. A browser says which site a script is from
(``Origin``, ``Sec-Fetch-Site``): a page that somebody visits elsewhere drives no robot. Nor does it show this page in a
frame, where a visitor would press a button without seeing it. On an address that other machines reach, the door asks
for the token that was printed at the start as well. The token comes in the link (``/?token=...``); a cookie keeps it
afterwards. The connection is not encrypted: who can read the network can read the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import threading
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from engram.core.errors import InvalidInputError

HEAD_MAX = 16384
"""Longest request head [bytes]."""
HEAD_S = 5.0
"""How long a visitor may take for it [s]."""
STRANGERS_MAX = 128
"""Connections whose head has not come yet; for one more, the oldest of the busiest address goes."""
BACKLOG = 32
"""Connections that are taken at once: a head that came with its connection is read before so many push it out."""
BLOCK = 1 << 16
COOKIE = "engram_token"
"""Begin of the cookie's name; the port ends it, as cookies are of all ports of a host."""
REFUSED = (
    b"HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"This page moves a robot and asks for its token: open the link that viewer_node printed at its start.\n"
)
FOREIGN = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"This page moves a robot: it is not served to other web sites, nor under another name of this machine.\n"
)
FRAMES = ("iframe", "frame", "embed", "object", "fencedframe")
"""Where a browser says that it shows the page within another (``Sec-Fetch-Dest``)."""
NO_FRAME = b"Content-Security-Policy: frame-ancestors 'none'\r\nX-Frame-Options: DENY\r\n"
"""Head lines that keep a browser from showing an answer within another page."""


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches what listens on ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hidden_loopback() -> str:
    """Return one of the 16 million addresses that lead to this machine alone, drawn at random."""
    return f"127.{secrets.randbelow(255)}.{secrets.randbelow(255)}.{1 + secrets.randbelow(254)}"


def comes_from_here(head: bytes, *, loopback: bool) -> bool:
    """Tell whether a request is of no other site, and for no frame; on ``loopback`` also whether it names it so.

    Who follows a link from elsewhere comes from here: the browser then shows the page alone.

    >>> asked = b"GET / HTTP/1.1\\r\\nHost: localhost:8080\\r\\nOrigin: http://%s\\r\\n\\r\\n"
    >>> comes_from_here(asked % b"localhost:8080", loopback=True), comes_from_here(asked % b"evil.com", loopback=True)
    (True, False)
    """
    named: dict[str, list[str]] = {
        name: [] for name in ("host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest")
    }
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        named.get(name.strip().lower(), []).append(value.strip().lower())
    hosts, origins, sites, modes, places = named.values()
    if len(hosts) != 1 or len(origins) > 1 or not {*places}.isdisjoint(FRAMES):
        return False
    alone = {*sites} <= {"none", "same-origin"} or (modes, places) == (["navigate"], ["document"])
    try:
        host = urlsplit(f"//{hosts[0]}").hostname or ""
        own = urlsplit(origins[0]).netloc == hosts[0] if origins else alone
    except ValueError:
        return False
    return own and (is_loopback(host) or not loopback)


def grants(head: bytes, token: str, cookie: str = COOKIE) -> tuple[bool, str]:
    """Read the head of a request: whether it shows ``token``, and where to go on if it did so in the link.

    >>> grants(b"GET /?token=abc HTTP/1.1\\r\\n\\r\\n", "abc"), grants(b"GET / HTTP/1.1\\r\\n\\r\\n", "abc")
    ((True, '/'), (False, ''))
    """
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3:
        return False, ""
    asked = urlsplit(words[1])
    in_link = parse_qs(asked.query).get("token", [""])[0]
    if in_link:
        return _same(in_link, token), asked.path or "/"
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "cookie" and _same(_cookie(value, cookie), token):
            return True, ""
    return False, ""


def _cookie(text: str, name: str) -> str:
    try:
        found = SimpleCookie(text.strip()).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _same(shown: str, token: str) -> bool:
    return secrets.compare_digest(shown.encode(), token.encode())


class TokenGate:
    """Listens on ``host`` and ``port`` and passes on to ``target`` (address, port) who may see the page.

    That is who shows the token; where ``host`` is of this machine alone, whoever is on it. No script of another site.

    Raises:
        InvalidInputError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, target: tuple[str, int], token: str = "") -> None:
        self.token = "" if is_loopback(host) else token or secrets.token_urlsafe(24)
        self._cookie = f"{COOKIE}_{port}"
        self.refused = 0
        self._host, self._port, self._target = host, port, target
        self._strangers: dict[asyncio.Task, str] = {}  # whose head has not come -> address; the oldest first
        self._tasks: set[asyncio.Task] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="token gate", daemon=True)
        self._thread.start()
        try:
            self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except OSError as error:
            self._end()
            raise InvalidInputError(f"cannot listen on {host}:{port}: {error.strerror}") from None

    @property
    def link(self) -> str:
        """What to open in a browser; 0.0.0.0 stands for each address of this machine."""
        return (
            f"http://{self._host}:{self._port}/?token={self.token}" if self.token else f"http://localhost:{self._port}"
        )

    def close(self) -> None:
        """Take no more visitors, and part with those who are there."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5.0)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._visited, self._host, self._port, limit=HEAD_MAX, backlog=BACKLOG)

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
                self._make_room()
                self._strangers[task] = (writer.get_extra_info("peername") or ("",))[0]
                await self._admit(await self._head(task, reader), reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    def _make_room(self) -> None:
        """Part with the oldest of the address that most strangers come from: it keeps away nobody from elsewhere."""
        if len(self._strangers) >= STRANGERS_MAX:
            busiest = Counter(self._strangers.values()).most_common(1)[0][0]
            oldest = next(task for task, address in self._strangers.items() if address == busiest)
            del self._strangers[oldest]
            oldest.cancel()

    async def _head(self, task: asyncio.Task, reader: asyncio.StreamReader) -> bytes:
        """Return the head of a stranger's request; empty: it is too long."""
        try:
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
        except asyncio.LimitOverrunError:
            return b""
        finally:
            self._strangers.pop(task, None)

    async def _admit(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head and not comes_from_here(head, loopback=not self.token):
            self.refused += 1
            writer.write(FOREIGN)
            await writer.drain()
            return
        granted, go_on_at = grants(head, self.token, self._cookie) if self.token else (bool(head), "")
        if not granted:
            self.refused += 1
            writer.write(REFUSED)
            await writer.drain()
        elif go_on_at:  # the token does not stay in the address bar
            writer.write(
                f"HTTP/1.1 303 See Other\r\nLocation: {_safe(go_on_at)}\r\nSet-Cookie: {self._cookie}={self.token}; "
                "Path=/; HttpOnly; SameSite=Lax\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            await writer.drain()
        else:
            await self._pass_on(head, reader, writer)

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        page_reader, page_writer = await asyncio.open_connection(*self._target)
        page_writer.write(head)
        try:
            ways = [
                asyncio.ensure_future(_pump(reader, page_writer)),
                asyncio.ensure_future(_answer(page_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait(ways[1:], timeout=HEAD_S)  # what the page still has to say
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            page_writer.close()


async def _answer(page: asyncio.StreamReader, visitor: asyncio.StreamWriter) -> None:
    """Pass on what the page says, with a head that keeps it out of frames."""
    status, _, rest = (await page.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    visitor.write(status + b"\r\n" + NO_FRAME + rest)
    await _pump(page, visitor)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while block := await source.read(BLOCK):
        sink.write(block)
        await sink.drain()


def _safe(path: str) -> str:
    """Return ``path`` as a place on this server: no other host, no further header."""
    return "/" + path.lstrip("/").replace("\\", "").replace("\r", "").replace("\n", "")
