"""A gate node that validates beside the measured loop, and rests while the loop is measured alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engram.benchmarks.gate_kills import make_learner
from engram.learning.weights.library import WeightsLibrary
from engram.nodes import messages, qos
from engram.nodes.loop_client import LoopClient
from engram_interfaces.msg import GateVerdict, PolicyManifest

SETTLE_S = 2.0
"""Pause after the node goes on: the others discover it anew."""
READY_S = 300.0
"""Until the first pair of episodes has run [s]."""
SLICE = 65536
"""Bytes of a slice of the weights, as a learner announces it; nobody asks for one here."""


class GateBeside:
    """A gate node with the niceness that it is shipped with, in a process group that is stopped as a whole.

    Args:
        client: announces candidates.
        folder: a learner's, made anew: ``base`` drives, and each candidate differs from it by a millionth or so.
        candidates: how many there are; each keeps the gate busy for hundreds of pairs.
    """

    def __init__(self, client: LoopClient, folder: Path, candidates: int) -> None:
        self._client = client
        names = [f"candidate{number}" for number in range(candidates)]
        make_learner(folder, names)
        library = WeightsLibrary(folder / "weights", read_only=True)
        self._left = [library.manifest(name) for name in names]
        self._candidates = client.node.create_publisher(PolicyManifest, "policy/candidate", qos.LATCHED)
        self._pairs = 0
        client.node.create_subscription(GateVerdict, "policy/gate", self._on_verdict, qos.LATCHED)
        words = [f"folder:={folder}", "policy:='base'", "promote:=false"]
        arguments = [word for one in words for word in ("-p", one)]
        command = [sys.executable, "-m", "engram.nodes.gate_node", "--ros-args", *arguments, "--log-level", "warn"]
        self._process = subprocess.Popen(command, stdout=sys.stderr, start_new_session=True)

    def _on_verdict(self, msg: GateVerdict) -> None:
        self._pairs = max(self._pairs, msg.pairs)

    def get_ready(self) -> None:
        """Wait until it has run episodes, then stop it."""
        self._offer()
        self._client.wait_for(lambda: self._pairs > 0, READY_S, "the gate validates")
        self._signal(signal.SIGSTOP)

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Let it validate meanwhile."""
        self._signal(signal.SIGCONT)
        self._offer()
        self._client.spin(SETTLE_S)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it with its workers."""
        self._signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def _offer(self) -> None:
        """Announce the next candidate: it waits until the one before is decided."""
        if self._left:
            self._candidates.publish(messages.manifest_to_msg(self._left.pop(0), 1, SLICE))

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)
