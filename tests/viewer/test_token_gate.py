"""Beyond this machine the page asks for a token: without it, nothing is served and no socket opens."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest
import viser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from engram.core.errors import InvalidInputError
from engram.core.ports import free_port
from engram.viewer.page import ViewerPage
from engram.viewer.token_gate import COOKIE, HEAD_MAX, STRANGERS_MAX, TokenGate, grants, hidden_loopback, is_loopback
from engram.viewer.values import PageActions

VERSION = [Subprotocol(f"viser-v{viser.__version__}")]


@pytest.fixture(scope="module")
def page() -> Iterator[ViewerPage]:
    nothing = PageActions(*[lambda *_: None] * 7)
    made = ViewerPage(free_port(), nothing, "0.0.0.0")
    yield made
    made.close()


def gate(page: ViewerPage) -> TokenGate:
    assert page._gate is not None
    return page._gate


def get(page: ViewerPage, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", gate(page)._port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("path", ["/", "/index.html", "/?token=", "/?token=guess", "/assets/x?token=guess"])
def test_without_the_token_nothing_is_served(page: ViewerPage, path: str) -> None:
    status, _, body = get(page, path, Cookie=f"{COOKIE}_{gate(page)._port}=guess")
    assert status == 401
    assert b"open the link that viewer_node printed" in body


def test_without_the_token_no_socket_opens(page: ViewerPage) -> None:
    for headers in ({}, {"Cookie": f"{COOKIE}_{gate(page)._port}=guess"}):
        with pytest.raises(InvalidStatus, match="401"):
            connect(f"ws://127.0.0.1:{gate(page)._port}", subprotocols=VERSION, additional_headers=headers)
    assert page.visitors == 0


def test_the_link_leads_to_the_page_and_its_socket_and_the_token_leaves_the_address(page: ViewerPage) -> None:
    assert page.link == f"http://0.0.0.0:{gate(page)._port}/?token={gate(page).token}"
    status, headers, _ = get(page, f"/?token={gate(page).token}")
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly" in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].split(";")[0]
    status, _, body = get(page, "/", Cookie=f"theme=dark; {cookie}")
    assert (status, b"<html" in body) == (200, True)
    address = f"ws://127.0.0.1:{gate(page)._port}"
    with connect(address, subprotocols=VERSION, additional_headers={"Cookie": cookie}) as visitor:
        assert isinstance(visitor.recv(timeout=20), bytes)


def test_two_pages_of_one_machine_keep_cookies_of_their_own(page: ViewerPage) -> None:
    """A browser sends the cookies of a host to all of its ports."""
    _, headers, _ = get(page, f"/?token={gate(page).token}")
    name, _, rest = headers["Set-Cookie"].partition("=")
    assert name == f"{COOKIE}_{gate(page)._port}"
    other = f"{COOKIE}_1={rest.split(';')[0][::-1]}"
    assert get(page, "/", Cookie=f"{other}; {name}={gate(page).token}")[0] == 200


@pytest.fixture(scope="module")
def here() -> Iterator[ViewerPage]:
    """A page for this machine alone, as by default."""
    made = ViewerPage(free_port(), PageActions(*[lambda *_: None] * 7))
    yield made
    made.close()


@pytest.mark.parametrize("which", ["page", "here"])
def test_a_script_of_another_site_opens_no_socket(which: str, request: pytest.FixtureRequest) -> None:
    """A browser lets any site try, and says which one it is; it sends the cookie, too."""
    found = request.getfixturevalue(which)
    port = gate(found)._port
    cookie = {"Cookie": f"{COOKIE}_{port}={gate(found).token}"}
    for origin in ("http://evil.example", f"http://localhost:{port + 1}", "null"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"ws://localhost:{port}", subprotocols=VERSION, origin=origin, additional_headers=cookie)  # type: ignore[arg-type]
    own = f"http://localhost:{port}"
    with connect(f"ws://localhost:{port}", subprotocols=VERSION, origin=own, additional_headers=cookie) as visitor:  # type: ignore[arg-type]
        assert isinstance(visitor.recv(timeout=20), bytes)


def test_another_name_that_leads_to_this_machine_shows_no_page(here: ViewerPage) -> None:
    """Whose name server says that evil.example is 127.0.0.1 would else be the page's own site."""
    port = gate(here)._port
    assert get(here, "/", Host=f"evil.example:{port}")[0] == 403
    assert get(here, "/", Host=f"localhost:{port}")[0] == 200
    assert here.link == f"http://localhost:{port}"


@pytest.mark.parametrize("path", ["/", "/index.html", "/nothing-of-that-name"])
def test_no_browser_shows_an_answer_of_the_page_in_a_frame(here: ViewerPage, path: str) -> None:
    """A visitor of another site would release a stop there with a click at something else."""
    status, headers, _ = get(here, path)
    assert status == (404 if "nothing" in path else 200)
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'" and headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    ("site", "mode", "dest", "status"),
    [
        ("cross-site", "navigate", "iframe", 403),
        ("same-site", "navigate", "iframe", 403),  # a page on another port of this machine
        ("same-origin", "navigate", "frame", 403),
        ("cross-site", "navigate", "embed", 403),
        ("cross-site", "no-cors", "object", 403),
        ("cross-site", "no-cors", "script", 403),
        ("same-site", "no-cors", "image", 403),
        ("cross-site", "navigate", "document", 200),  # a link that somebody follows
        ("none", "navigate", "document", 200),
        ("same-origin", "no-cors", "script", 200),
    ],
)
def test_a_page_of_another_site_gets_nothing_but_a_link(
    here: ViewerPage, site: str, mode: str, dest: str, status: int
) -> None:
    told = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    assert get(here, "/", Host=f"localhost:{gate(here)._port}", **told)[0] == status


def strangers(page: ViewerPage, address: str, how_many: int, stack: ExitStack) -> list[socket.socket]:
    """Connections from ``address`` that say nothing, once the gate has them."""
    port = gate(page)._port
    made = [
        stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(address, 0)))
        for _ in range(how_many)
    ]
    end = time.monotonic() + 20
    while len(gate(page)._strangers) < min(how_many, STRANGERS_MAX) and time.monotonic() < end:
        time.sleep(0.01)
    return made


def test_who_says_nothing_keeps_nobody_away(page: ViewerPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.viewer.token_gate.HEAD_S", 60.0)
    with ExitStack() as stack:
        strangers(page, "127.0.0.1", STRANGERS_MAX + 4, stack)
        cookie = f"{COOKIE}_{gate(page)._port}={gate(page).token}"
        assert get(page, "/", Cookie=cookie)[0] == 200
        assert len(gate(page)._strangers) <= STRANGERS_MAX


def test_where_too_many_say_nothing_the_oldest_of_the_busiest_address_goes(
    page: ViewerPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.viewer.token_gate.HEAD_S", 60.0)
    with ExitStack() as stack:
        slow = strangers(page, "127.0.0.2", 1, stack)[0]
        many = strangers(page, "127.0.0.3", STRANGERS_MAX + 8, stack)
        assert many[0].recv(1) == b""
        slow.sendall(b"GET / HTTP/1.1\r\nHost: robot\r\n\r\n")
        assert slow.recv(1000).startswith(b"HTTP/1.1 401")


def test_no_visitor_lets_viser_publish_the_page(here: ViewerPage) -> None:
    assert here.server.request_share_url() is None


def test_a_head_that_does_not_end_is_cut_off(page: ViewerPage) -> None:
    with socket.create_connection(("127.0.0.1", gate(page)._port), timeout=10) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * (2 * HEAD_MAX))
        assert stranger.recv(1000).startswith(b"HTTP/1.1 401")


def test_the_page_behind_the_gate_is_reached_from_this_machine_alone(page: ViewerPage) -> None:
    host, port = page.server.get_host(), page.server.get_port()
    assert is_loopback(host) and (host, port) == gate(page)._target
    with pytest.raises(ConnectionRefusedError):  # where a script of another site would look for it
        socket.create_connection(("127.0.0.1", port), timeout=10)
    assert len({hidden_loopback() for _ in range(20)}) > 15


def test_a_token_in_a_link_leads_to_no_other_place() -> None:
    head = b"GET //evil.example/%0d%0aX?token=t HTTP/1.1\r\n\r\n"
    assert grants(head, "t")[0]
    for malformed in (b"", b"\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\nCookie: \xff=;;\r\n\r\n"):
        assert grants(malformed, "t") == (False, "")


def test_addresses_of_this_machine_alone_are_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.1.2.3")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.1.2", "::", "robot.local", "")))


def test_an_address_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"cannot listen on 192\.0\.2\.1"):
        TokenGate("192.0.2.1", free_port(), ("127.0.0.1", 1))
