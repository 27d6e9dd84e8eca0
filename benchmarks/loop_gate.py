"""A gate node that validates beside the measured loop, and rests while the loop is measured alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engram.benchmarks.gate_kills import make_learner, results
from engram.learning.weights.library import WeightsLibrary
from engram.nodes import messages, qos
from engram.nodes.loop_client import LoopClient
from engram.runtime.episode_report import LoopError
from engram_interfaces.msg import PolicyManifest

NODE = ("-m", "engram.nodes.gate_node")
"""What Python runs."""
LOG = Path("runs/bench/loop_gate.log")
"""What the node says."""
SETTLE_S = 2.0
"""Pause after the node goes on: the others discover it anew."""
READY_S = 300.0
"""Until an episode has run, from the start on or beside the loop [s]."""
END_S = 30.0
"""Until it has to have ended [s]."""
SLICE = 65536
"""Bytes of a slice of the weights, as a learner announces it; nobody asks for one here."""


class GateBeside:
    """A gate node with the niceness that it is shipped with, in a process group that is stopped as a whole.

    It counts as validating while it lives and ever more of its episodes are kept; a round of pairs, of which it tells,
    may take longer than a block of the loop.

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
        self._folder = folder
        words = [f"folder:={folder}", "policy:='base'", "promote:=false"]
        arguments = [word for one in words for word in ("-p", one)]
        command = [sys.executable, *NODE, "--ros-args", *arguments, "--log-level", "warn"]
        LOG.parent.mkdir(parents=True, exist_ok=True)
        with LOG.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def get_ready(self) -> None:
        """Wait until it has run episodes, then stop it.

        Raises:
            LoopError: it ended, or ran none; names its log.
        """
        self._offer()
        self._wait_for_more(0)
        self._signal(signal.SIGSTOP)

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Let it validate meanwhile.

        Raises:
            LoopError: it has ended, or ran no episode meanwhile; names its log.
        """
        self._check_lives()
        before = len(results(self._folder))
        self._signal(signal.SIGCONT)
        try:
            self._offer()
            self._client.spin(SETTLE_S)
            yield
            self._wait_for_more(before)
        finally:
            self._signal(signal.SIGSTOP)

    def _wait_for_more(self, before: int) -> None:
        """Wait until more episodes are kept than there were ``before``."""

        def is_more() -> bool:
            self._check_lives()
            return len(results(self._folder)) > before

        self._client.wait_for(is_more, READY_S, f"another episode of the gate (its log: {LOG.absolute()})")

    def _check_lives(self) -> None:
        if (code := self._process.poll()) is not None:
            raise LoopError(f"the gate node ended with code {code}; its log: {LOG.absolute()}")

    def close(self) -> None:
        """End it with its workers."""
        self._signal(signal.SIGCONT)
        self._process.terminate()  # a shell's background commands ignore SIGINT
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _offer(self) -> None:
        """Announce the next candidate: it waits until the one before is decided."""
        if self._left:
            self._candidates.publish(messages.manifest_to_msg(self._left.pop(0), 1, SLICE))

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended, and so have its workers
            os.killpg(self._process.pid, number)
