"""Two machines and the link between them, on this one: network namespaces that a relay process joins.

``body`` and ``far`` are namespaces with one Ethernet interface each. Its other end lies in a third one, where
:mod:`engram.benchmarks.link_relay` copies frames from one to the other, late, with losses and cuts. It needs root and
``ip`` of iproute2, but not the kernel's netem.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17
ADDRESSES = {"body": "10.77.0.1", "far": "10.77.0.2"}
MACS = {"body": "02:00:00:77:00:01", "far": "02:00:00:77:00:02"}
RELAY = Path(__file__).with_name("link_relay.py")


def why_not() -> str:
    """Return what keeps the rig from working here; "" if it works."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip, of the package iproute2"
    name = f"engram{os.getpid()}t"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return "" if made.returncode == 0 else f"no network namespaces here: {made.stderr.strip()}"


class LinkRig:
    """The namespaces ``body`` and ``far``, for as long as the context lasts. At first the link is perfect.

    Args:
        seed: of the relay's random losses.
    """

    def __init__(self, seed: int = 0) -> None:
        tag = f"en{os.getpid()}"
        self.namespaces = {end: f"{tag}{end}" for end in (*ADDRESSES, "relay")}
        self._near = {"body": f"{tag}a", "far": f"{tag}b"}  # interface in the machine; at most 15 characters
        self._relayed = {"body": f"{tag}c", "far": f"{tag}d"}  # its other end, in the relay's namespace
        self._seed = seed
        self._relay: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def set(
        self, *, loss: float | None = None, delay_s: float | None = None, cut: bool | None = None
    ) -> dict[str, int]:
        """Change the link, each way: probability of a loss, delay [s], cut. Return the frames so far by their fate."""
        wanted = {"loss": loss, "delay_s": delay_s, "cut": cut}
        return self._tell({name: value for name, value in wanted.items() if value is not None})

    def counts(self) -> dict[str, int]:
        """Return the frames so far by their fate."""
        return self._tell({})

    def command(self, end: str, words: list[str]) -> list[str]:
        """Return the command line that runs ``words`` on the machine ``end``, body or far."""
        return ["ip", "netns", "exec", self.namespaces[end], *words]

    def start(
        self, end: str, words: list[str], environment: Mapping[str, str] | None = None, log: IO[str] | int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process on the machine ``end``; it reaches nothing else over the network."""
        shared = {**os.environ, "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET", **(environment or {})}
        return subprocess.Popen(
            self.command(end, words), env=shared, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )

    @contextmanager
    def inside(self, end: str) -> Iterator[None]:
        """Let the calling thread, and the threads and processes that it begins, be on the machine ``end``."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.namespaces[end]}") as there:
            os.setns(there.fileno(), os.CLONE_NEWNET)
            try:
                yield
            finally:
                os.setns(home.fileno(), os.CLONE_NEWNET)

    # -- making and removing it ------------------------------------------------------------------------------------

    def _build(self) -> None:
        for namespace in self.namespaces.values():
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        for end, address in ADDRESSES.items():
            near, relayed = self._near[end], self._relayed[end]
            _ip("link", "add", near, "address", MACS[end], "type", "veth", "peer", "name", relayed)
            _checksums_by_kernel(near)  # before it moves: names of interfaces are those of one namespace
            _ip("link", "set", near, "netns", self.namespaces[end])
            _ip("link", "set", relayed, "netns", self.namespaces["relay"])
            inside = ("-n", self.namespaces[end])
            _ip(*inside, "addr", "add", f"{address}/24", "dev", near)
            _ip(*inside, "link", "set", near, "up")
            _ip(*inside, "route", "add", "default", "dev", near)
            _ip("-n", self.namespaces["relay"], "link", "set", relayed, "promisc", "on", "up")
        for end, other in (("body", "far"), ("far", "body")):  # so that losses hit messages, not ARP
            entry = (ADDRESSES[other], "lladdr", MACS[other], "dev", self._near[end], "nud", "permanent")
            _ip("-n", self.namespaces[end], "neigh", "replace", *entry)
        interfaces = [self._relayed["body"], self._relayed["far"]]
        words = [sys.executable, str(RELAY), *interfaces, str(self._seed)]
        self._relay = subprocess.Popen(
            self.command("relay", words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._tell({})  # it copies from now on

    def _tell(self, values: Mapping[str, Any]) -> dict[str, int]:
        assert self._relay is not None and self._relay.stdin is not None and self._relay.stdout is not None
        self._relay.stdin.write(json.dumps(values) + "\n")
        self._relay.stdin.flush()
        answer = self._relay.stdout.readline()
        if not answer:
            raise RuntimeError(f"the relay ended with {self._relay.wait()}")
        counts: dict[str, int] = json.loads(answer)
        return counts

    def _remove(self) -> None:
        if self._relay is not None and self._relay.stdin is not None:
            self._relay.stdin.close()
            self._relay.wait(10.0)
        for namespace in self.namespaces.values():  # a namespace takes its interfaces with it
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        for interface in (*self._near.values(), *self._relayed.values()):
            subprocess.run(["ip", "link", "del", interface], capture_output=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _checksums_by_kernel(interface: str) -> None:
    """Have checksums computed when a packet is sent: the relay's frames would otherwise carry unfinished ones."""
    value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))  # struct ifreq
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request.ljust(40, b"\0"))
