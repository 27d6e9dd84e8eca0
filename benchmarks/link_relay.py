"""Copies Ethernet frames between two interfaces, late, with losses and cuts: a bad radio link between two machines.

A process of its own, run by :mod:`engram.benchmarks.link_rig` in a network namespace that holds nothing else::

    python link_relay.py FIRST_INTERFACE SECOND_INTERFACE SEED

Each line on standard input is a JSON object with any of ``loss`` (probability that a frame is dropped), ``delay_s``
(each way) and ``cut`` (drop everything); the answer is one line with what happened since the start.
"""

from __future__ import annotations

import heapq
import json
import random
import select
import socket
import sys
import time
from dataclasses import dataclass, field

SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23  # of linux/if_packet.h; the socket module lacks them
SO_RCVBUFFORCE = 33
ETH_P_ALL = 3
BUFFER_BYTES = 8 << 20
"""Receive buffer of each socket: what the relay itself drops would not be in its count of losses."""


@dataclass
class Relay:
    """What the link does, and what it did."""

    seed: int
    loss: float = 0.0
    delay_s: float = 0.0
    cut: bool = False
    waiting: list[tuple[float, int, int, bytes]] = field(default_factory=list)  # due [monotonic s], number, to, frame
    counts: dict[str, int] = field(default_factory=lambda: {"frames": 0, "bytes": 0, "lost": 0, "cut": 0})

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def arrived(self, frame: bytes, to: int, now_s: float) -> None:
        """Decide what becomes of a frame that goes to socket ``to``."""
        self.counts["frames"] += 1
        self.counts["bytes"] += len(frame)
        lost = self.chance.random() < self.loss  # drawn for every frame, so that a cut does not shift the others
        if self.cut or lost:
            self.counts["cut" if self.cut else "lost"] += 1
            return
        heapq.heappush(self.waiting, (now_s + self.delay_s, self.counts["frames"], to, frame))

    def due(self, now_s: float) -> list[tuple[int, bytes]]:
        """Return what is to be sent now, in order: to which socket, and the frame."""
        out = []
        while self.waiting and self.waiting[0][0] <= now_s:
            _, _, to, frame = heapq.heappop(self.waiting)
            if not self.cut:
                out.append((to, frame))
        return out

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait for a new frame at most [s]."""
        return max(0.0, self.waiting[0][0] - now_s) if self.waiting else 1.0


def packet_socket(interface: str) -> socket.socket:
    """Return a socket that reads and writes whole frames of ``interface``."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    made.bind((interface, 0))
    made.setblocking(False)
    return made


def serve(relay: Relay, ends: tuple[socket.socket, socket.socket]) -> None:
    """Copy frames until standard input closes."""
    while True:
        ready, _, _ = select.select([*ends, sys.stdin], [], [], relay.wait_s(time.monotonic()))
        for number, end in enumerate(ends):
            if end in ready:
                _read_all(relay, end, 1 - number)
        for to, frame in relay.due(time.monotonic()):
            try:
                ends[to].send(frame)
            except OSError:  # the other machine's interface is down, or its queue full
                relay.counts["lost"] += 1
        if sys.stdin in ready and not _obey(relay):
            return


def _read_all(relay: Relay, end: socket.socket, to: int) -> None:
    while True:
        try:
            frame = end.recv(65536)
        except BlockingIOError:
            return
        relay.arrived(frame, to, time.monotonic())


def _obey(relay: Relay) -> bool:
    line = sys.stdin.readline()
    if not line:
        return False
    for name, value in json.loads(line).items():
        setattr(relay, name, value)
    print(json.dumps(relay.counts), flush=True)
    return True


if __name__ == "__main__":
    serve(Relay(int(sys.argv[3])), (packet_socket(sys.argv[1]), packet_socket(sys.argv[2])))
