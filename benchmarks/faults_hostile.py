"""Hostile messages and calls from an outside process, topic by topic and service by service, and what they did."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engram.benchmarks.faults_kills import watched_figures
from engram.benchmarks.faults_loop import DIAGNOSTICS_S, Loop, TrialError, end
from engram.benchmarks.faults_pilot import Pilot
from engram.benchmarks.report import figure
from engram.core.errors import EngramError
from engram.core.statistics import wilson

DOWN_S = 10.0
"""A node that is not active, or says nothing, for longer than this is down [s]."""
DISCOVERY_S = 60.0
SLOWEST = 10.0
"""Calls that a node answers in a second at least, on a busy machine [1/s]."""
GIVE_UP_S = 60.0
"""After this it is killed, so that the next block finds it working [s]."""
HARMLESS = (
    *("/diagnostics", "/rosout", "/parameter_events", "safety/stop", "robot_description"),
    *("is_active", "get_state", "describe_parameters", "list_parameters", "get_parameters", "get_parameter_types"),
    *("get_available_states", "get_available_transitions", "get_transition_graph", "get_type_description"),
    *("memory/conflicts", "get_logger_levels", "_action/status", "_action/feedback", "experience/ack"),
)
"""Endings of names where nothing can be wrong: every value is valid, or only asks, or may be for another robot."""


@dataclass
class Block:
    """What one block of an attack did."""

    name: str
    sent: int
    not_sendable: int
    under_stop: bool
    topic: bool = False
    """Whether it went to one topic. A service says in its answer what it refuses."""
    down: dict[str, float | None] = field(default_factory=dict)  # node -> s until active again; None = not in time
    refused: int = 0  # by which the counters of refusals grew
    reasons: tuple[str, ...] = ()
    problem: str = ""


class Stoppable(Protocol):
    """What knows whether the robot is stopped."""

    stopped: bool


class Attack:
    """Drives the attacker and looks at the loop after each block."""

    def __init__(self, loop: Loop, pilot: Stoppable, seed: int, rate: float) -> None:
        self.loop, self.pilot, self.rate = loop, pilot, rate
        self.blocks: list[Block] = []
        self._answers = loop.folder / "attacker.jsonl"
        self._ordered = 0
        self.process = loop.beside("faults_attacker", str(self._answers), "--seed", str(seed), orders=True)

    def order(self, *words: str, timeout_s: float) -> Any:
        """Tell the attacker what to do and wait for its answer, the loop going on meanwhile."""
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join(words) + "\n").encode())
        self.process.stdin.flush()
        self._ordered += 1
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and self.process.poll() is None:
            lines = self._answers.read_text().splitlines() if self._answers.exists() else []
            if len(lines) >= self._ordered:  # an answer to an earlier order may have come late
                return json.loads(lines[self._ordered - 1])
            self.loop.client.spin(0.05)
        raise TrialError(f"the attacker did not answer {' '.join(words)!r}; logs: {self.loop.folder}")

    def targets(self) -> dict[str, list[str]]:
        """Return what there is to attack, when the attacker has found every node and finds no more."""
        found: dict[str, list[str]] = {}
        until = time.monotonic() + DISCOVERY_S
        while time.monotonic() < until:
            before, found = found, self.order("list", timeout_s=60.0)
            services = " ".join(found["services"])
            if found == before and all(f"/{name}/" in services for name in self.loop.names):
                return found
            self.loop.client.spin(2.0)
        raise TrialError(f"the attacker does not find every node within {DISCOVERY_S:g} s")

    def block(self, name: str, targets: list[str], count: int, under_stop: bool, order: str = "attack") -> Block:
        """Send ``count`` messages to each of ``targets``, as ``topic:NAME``, and wait until every node works."""
        before = self.loop.refusals()
        limit_s = 120.0 + len(targets) * (10.0 + count / min(self.rate, SLOWEST))
        try:
            told = self.order(order, str(count), f"{self.rate:g}", *targets, timeout_s=limit_s)
            topic = targets == [f"topic:{name}"]
            block = Block(name, told["sent"], told["not_sendable"], under_stop, topic)
        except TrialError as error:
            if self.process.poll() is not None:
                raise
            block = Block(name, 0, 0, under_stop, problem=str(error))
        self.loop.client.spin(1.5 * DIAGNOSTICS_S)
        block.down = self._wait_working()
        grown = Counter({k: n for k, n in (self.loop.refusals() - before).items() if n > 0})
        block.refused, block.reasons = sum(grown.values()), tuple(k for k, _ in grown.most_common(3))
        self.blocks.append(block)
        down = f"; down: {block.down}" if block.down else ""
        print(
            f"{name}: {block.sent} sent, {block.refused} refused {list(block.reasons)}{down}",
            file=sys.stderr,
            flush=True,
        )
        return block

    def _wait_working(self) -> dict[str, float | None]:
        """Wait until every node is active; return those that took longer than they may."""
        began = time.monotonic()
        down: dict[str, float | None] = {}
        while inactive := self.loop.inactive():
            waited = time.monotonic() - began
            if waited > DOWN_S:
                down |= {name: None for name in inactive}
            if waited > GIVE_UP_S:
                for name in inactive:
                    if self.loop.supervisor.children[name].process is not None:
                        self.loop.kill(name)
                self._wait_again(inactive)
                return down
            self.loop.client.spin(0.1)
            for name in set(down) - set(self.loop.inactive()):
                down[name] = down[name] or round(time.monotonic() - began, 1)
        return down

    def _wait_again(self, names: list[str]) -> None:
        try:
            self.loop.wait_active(GIVE_UP_S)
        except TrialError as error:
            raise TrialError(f"{', '.join(names)} stay down even when started again: {error}") from error

    def close(self) -> None:
        """End the attacker."""
        end(self.process)


def set_stopped(loop: Loop, pilot: Stoppable, *, stopped: bool) -> None:
    """Stop or release the robot and wait until it is known."""
    until = time.monotonic() + 30.0
    while pilot.stopped is not stopped and time.monotonic() < until:
        try:
            loop.client.trigger("safety/stop" if stopped else "safety/reset", 10.0)
        except EngramError as error:
            print(f"stop or release: {error}", file=sys.stderr, flush=True)
        loop.client.spin(0.5)


def plan(topics: list[str], services: list[str], *, quick: bool) -> list[tuple[str, list[str], bool]]:
    """Return the blocks of an attack: name, targets, and whether the robot is stopped meanwhile.

    Each topic and each service is a block in episodes and one under a stop; in a ``quick`` attack those under a stop
    are one block, the services of one node are one, and calls that cannot be wrong are left out.
    """
    if not quick:
        single = [(name, f"topic:{name}") for name in topics] + [(name, f"service:{name}") for name in services]
        return [(name, [target], stopped) for stopped in (False, True) for name, target in single]
    groups: dict[str, list[str]] = {}
    for name in services:
        if not name.endswith(HARMLESS):
            groups.setdefault(f"services {name.rsplit('/', 1)[0] or name}", []).append(f"service:{name}")
    all_topics = [f"topic:{name}" for name in topics]
    blocks = [(name, [target], False) for name, target in zip(topics, all_topics, strict=True)]
    blocks += [(name, targets, False) for name, targets in groups.items()]
    return [
        *blocks,
        ("all topics", all_topics, True),
        ("all services", [one for group in groups.values() for one in group], True),
    ]


def trial(
    loop: Loop,
    pilot: Pilot,
    watched: Path,
    messages: int,
    seed: int,
    *,
    quick: bool,
    rate: float = 500.0,
    only: str = "",
) -> list[dict[str, Any]]:
    """Send ``messages`` in all, half of them in episodes and half under a latched stop; return the figures.

    ``only``: attack just the names that one of these is part of, separated by commas; empty: all.
    """
    since, started = time.monotonic(), loop.supervisor.restarts
    before = _episodes(loop, pilot, 2)
    attack = Attack(loop, pilot, seed, rate)
    loop.every_turn = pilot.turn
    try:
        targets = attack.targets()
        targets = {
            kind: [name for name in names if any(one in name for one in only.split(","))]
            for kind, names in targets.items()
        }
        each = max(4, messages // (2 * max(1, sum(map(len, targets.values())))))
        for name, chosen, under_stop in plan(targets["topics"], targets["services"], quick=quick):
            if pilot.stopped is not under_stop:
                set_stopped(loop, pilot, stopped=under_stop)
            attack.block(name, chosen, each, under_stop)
    finally:
        attack.close()
    set_stopped(loop, pilot, stopped=False)
    after = _episodes(loop, pilot, 2)
    restarts = loop.supervisor.restarts - started
    return [*figures(attack.blocks, before, after, restarts), *watched_figures("hostile", watched, since)]


def _episodes(loop: Loop, pilot: Pilot, count: int) -> list[str]:
    """Run episodes that a good robot does; return their outcomes."""
    turn, loop.every_turn = loop.every_turn, lambda: None
    outcomes = []
    for seed in range(count):
        report = loop.episode("reach", seed, 60.0)
        outcomes.append(report if isinstance(report, str) else report.outcome)
    loop.every_turn = turn
    return outcomes


def figures(blocks: list[Block], before: list[str], after: list[str], restarts: int) -> list[dict[str, Any]]:
    """Return what the attack did, and how an episode goes after it."""
    sent = sum(block.sent for block in blocks)
    down = [f"{name} after {block.name}: {took or 'not back'}" for block in blocks for name, took in block.down.items()]
    tried = {block.name for block in blocks if block.topic and not block.name.endswith(HARMLESS)}
    silent = sorted(tried - {block.name for block in blocks if block.refused})
    good = sum(outcome == "succeeded" for outcome in after)
    rate = wilson(good, max(1, len(after)))
    return [
        figure("hostile_messages", sent, sent, blocks=len(blocks), names=len({block.name for block in blocks}),
               not_sendable=sum(block.not_sendable for block in blocks),
               problems=[block.problem for block in blocks if block.problem]),
        figure("hostile_nodes_down_over_10_s", len(down), len(blocks), None, "== 0", not down, down=down),
        figure("hostile_restarts", restarts, len(blocks), None, "== 0", restarts == 0),
        figure("hostile_topics_without_counted_refusal", len(silent), len(tried), None, "== 0", not silent,
               names=silent),
        figure("hostile_episodes_after", rate.rate, len(after), (rate.low, rate.high), "as before",
               after == before, before=before, after=after),
    ]  # fmt: skip
