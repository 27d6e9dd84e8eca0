"""kill -9 at random instants over all nodes of the running loop: recovery, losses, limits, latches."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engram.app.up import SupervisorConfig
from engram.benchmarks.faults_ledger import MemoryLedger, kept_experience, lost_and_doubled
from engram.benchmarks.faults_limits import STILL_RAD
from engram.benchmarks.faults_loop import Loop, findings
from engram.benchmarks.faults_pilot import Pilot
from engram.benchmarks.report import figure
from engram.core.errors import EngramError
from engram.core.statistics import wilson
from engram.memory import RobotMemory
from engram.nodes import qos
from engram_interfaces.msg import SceneGraphUpdate

RECOVERY_LIMIT_S = 10.0
GIVE_UP_S = 60.0
"""A node that is not active again after this counts as down [s]."""
EVERY_STOP = 2
"""Every second kill of the safety node, the first one too, comes under a latched stop."""
BRAKES_S = 8.0
"""How long a safety node that is back may take to bring the arm to rest [s]: its commands count once DDS has noticed
the end of the killed one (6 s), and first it is shown the step again."""
HELD_S = 1.5
"""How long a robot that must be held is watched [s]."""
HEARD_S = 0.5
"""What was said before the safety node was killed is heard within this [s]; the next one needs longer to begin."""
TRIES, MOVING_S = 20, 1.0
"""So often it is tried to kill the safety node in an episode in whose last second the arm moved."""
COMMAND_LIMITS = (
    *("not_finite", "position", "duration", "velocity", "acceleration", "jerk", "early"),
    "command_not_allowed",
)
MOTION_LIMITS = ("fast_motion", "motion_not_allowed")


@dataclass
class Kills:
    """What came of the kills."""

    recoveries: dict[str, list[float]] = field(default_factory=dict)  # node -> s
    down: list[str] = field(default_factory=list)
    stopped_kills: int = 0
    stops_lost: int = 0
    episode_kills: int = 0  # of the safety node in an episode
    moved_unarmed: int = 0
    safety: list[str] = field(default_factory=list)  # what each kill of the safety node did


def patience(killed_s: float | None, now_s: float) -> float:
    """Return how long a node that was killed at ``killed_s`` has yet to be left alone at ``now_s`` [s].

    One that is killed oftener is given up by those who start it again, as it should be.
    """
    apart_s = SupervisorConfig.restart_window_s / SupervisorConfig.max_restarts + 1.0
    return 0.0 if killed_s is None else max(0.0, killed_s + apart_s - now_s)


class Killer:
    """Kills nodes of a running loop and notes when each is back.

    Args:
        loop: the running nodes.
        pilot: keeps episodes going.
        seed: of order and instants.
        together: so many may be down at once.
        only: nodes to kill, which may be started again as often as it takes; none: all.
    """

    def __init__(self, loop: Loop, pilot: Pilot, seed: int, together: int, only: Sequence[str] = ()) -> None:
        self.loop, self.pilot, self.together, self.only = loop, pilot, together, tuple(only)
        self.rng = np.random.default_rng(seed)
        self.ledger, self.kills = MemoryLedger(), Kills()
        self._safety = 0
        self._pending: dict[str, float] = {}  # node -> when it was killed [monotonic s]
        self._last: dict[str, float] = {}  # node -> when it was killed last, whether it is back or not
        loop.every_turn = self._turn
        loop.client.node.create_subscription(SceneGraphUpdate, "memory/graph", self._on_graph, qos.GRAPH)

    def run(self, count: int, longest_wait_s: float) -> Kills:
        """Kill ``count`` nodes, each after at most ``longest_wait_s`` of work."""
        names = list(self.only or self.loop.names)
        order = [str(name) for _ in range(count // len(names) + 1) for name in self.rng.permutation(names)]
        for number, name in enumerate(order[:count]):
            self._wait_for(0 if name == "safety_node" else self.together - 1, name)
            if not self.only:
                self.loop.client.spin(patience(self._last.get(name), time.monotonic()))
            for _ in range(TRIES if name == "safety_node" else 1):
                if self.together == 1 or name == "safety_node":
                    self.pilot.wait_running(30.0)
                self.loop.client.spin(float(self.rng.uniform(0.0, longest_wait_s)))
                if self.pilot.running and time.monotonic() - self.pilot.moved_at < MOVING_S:
                    break
            if self.loop.supervisor.children[name].process is None:
                self.kills.down.append(f"{name} (kill {number}: it did not run)")
                continue
            print(f"kill {number + 1} of {count}: {name}", file=sys.stderr, flush=True)
            if name == "safety_node":
                self._safety_kill()
            else:
                self._pending[name] = self.loop.kill(name)
            self._last[name] = time.monotonic()
        self._wait_for(0)
        return self.kills

    def _wait_for(self, at_most: int, name: str = "") -> None:
        """Wait until at most so many nodes are down, and ``name`` is not."""
        while len(self._pending) > at_most or name in self._pending:
            self.loop.client.spin(0.05)

    def _take_recovered(self) -> None:
        """Note which nodes are back, and which stay down."""
        for name, at in list(self._pending.items()):
            if self.loop.active(name):
                took = self.loop.heard[name] - at
                self.kills.recoveries.setdefault(name, []).append(took)
                print(f"  {name}: active after {took:.1f} s", file=sys.stderr, flush=True)
            elif time.monotonic() - at > GIVE_UP_S:
                self.kills.down.append(name)
                print(f"  {name}: not back", file=sys.stderr, flush=True)
            else:
                continue
            del self._pending[name]

    def _safety_kill(self) -> None:
        """Kill the safety node, now and then under a stop; the robot has to be held until it is released.

        An episode that runs in lock-step cannot end without the safety node: one that ends now had ended before.
        """
        self._safety += 1
        under_stop = self._safety % EVERY_STOP == 1
        if under_stop:
            self._trigger("safety/stop")
        ran, self.pilot.idle = self.pilot.episode, True
        self._pending["safety_node"] = killed = self.loop.kill("safety_node")
        self.loop.client.spin(HEARD_S)
        in_episode = ran is not None and self.pilot.episode == ran
        self.pilot.idle = False
        self._wait_for(0)
        self.loop.client.spin(BRAKES_S)
        moved = self.pilot.moved(HELD_S) if self.pilot.joints is not None else 0.0
        if under_stop:
            self.kills.stopped_kills += 1
            self.kills.stops_lost += int(not self.pilot.stopped or moved > STILL_RAD)
        elif in_episode:
            self.kills.episode_kills += 1
            self.kills.moved_unarmed += int(moved > STILL_RAD)
        said = (
            f"{'in' if in_episode else 'outside'} an episode, {'under' if under_stop else 'without'} a stop: moved "
            f"{moved:.3f} rad while it was to be held, last motion {self.pilot.moved_at - killed:.1f} s after the kill"
        )
        self.kills.safety.append(said)
        print(f"  safety_node: {said}", file=sys.stderr, flush=True)
        self._trigger("safety/reset")

    def _trigger(self, service: str) -> None:
        try:
            self.loop.client.trigger(service, 20.0)
        except EngramError as error:
            print(f"{service}: {error}", file=sys.stderr, flush=True)

    def _turn(self) -> None:
        self.pilot.turn()
        self._take_recovered()
        durable = self.loop.value("memory_node", "durable sequence")
        if durable.isdigit():
            self.ledger.durable(int(durable))

    def _on_graph(self, msg: SceneGraphUpdate, info: Any) -> None:
        seen = {node.id: int(node.observations) for node in msg.nodes}
        self.ledger.told(msg.boot_id, int(msg.sequence), seen, msg.deleted_nodes)


def losses(killer: Killer, watched: Path, home: Path) -> list[dict[str, Any]]:
    """Return the figures of what was acknowledged and is gone; the nodes have ended."""
    robot = home / ".local/share/engram/sim-robot0"
    with RobotMemory.open(robot / "memory", read_only=True) as memory:
        nodes = {node.id: node.observations for node in memory.graph().nodes}
    facts, gone = killer.ledger.acknowledged, killer.ledger.lost(nodes)
    sent = {tuple(row["id"]) for row in findings(watched) if row["kind"] == "experience"}
    kept = kept_experience(robot / "spool/spool.sqlite", robot / "learner/experience/experience.sqlite")
    lost, doubled = lost_and_doubled(sent, kept)
    for text in [*gone, *map(str, lost[:5]), *map(str, doubled[:5])]:
        print(f"lost or doubled: {text}", file=sys.stderr)
    return [
        _zero("kills_acknowledged_facts_lost", len(gone), len(facts)),
        _zero("kills_transitions_lost", len(lost), len(sent)),
        _zero("kills_transitions_doubled", len(doubled), len(kept)),
    ]


def figures(kills: Kills, count: int) -> list[dict[str, Any]]:
    """Return recovery times and latches."""
    times = np.array([one for node in kills.recoveries.values() for one in node])
    late = int((times > RECOVERY_LIMIT_S).sum())
    p50, p99 = np.percentile(times, (50, 99)) if len(times) else (0.0, 0.0)
    nodes = {f"{n} p50/max s": [round(float(np.median(t)), 1), round(max(t), 1), len(t)]
             for n, t in sorted(kills.recoveries.items())}  # fmt: skip
    back = wilson(len(times), max(1, len(times) + len(kills.down)))
    return [
        figure("kills_recovered", back.rate, count, (back.low, back.high), ">= 1.0", back.rate == 1.0, down=kills.down),
        figure("kills_recovery_p50_s", float(p50), len(times)),
        figure("kills_recovery_p99_s", float(p99), len(times), None, f"<= {RECOVERY_LIMIT_S:g}",
               bool(p99 <= RECOVERY_LIMIT_S), nodes=nodes),
        _zero("kills_recovery_over_limit", late, len(times)),
        _zero("kills_stops_lost", kills.stops_lost, kills.stopped_kills),
        _zero("kills_moved_before_released", kills.moved_unarmed, kills.episode_kills, safety_kills=kills.safety),
    ]  # fmt: skip


def watched_figures(part: str, watched: Path, since: float = 0.0, until: float = float("inf")) -> list[dict[str, Any]]:
    """Return how many commands and motions were beyond a limit, of all that the watcher saw."""
    rows = findings(watched, since, until)
    counted = [row for row in rows if row["kind"] == "counts"] or [{"commands": 0, "motions": 0}]
    out = []
    judged = (("commands_beyond_limits", COMMAND_LIMITS, "commands"), ("motions_not_allowed", MOTION_LIMITS, "motions"))
    for name, kinds, counter in judged:
        found = [row for row in rows if row["kind"] in kinds]
        kinds_found = {k: sum(row["kind"] == k for row in found) for k in sorted({row["kind"] for row in found})}
        examples = [f"{row['kind']} {row['text']}" for row in found[:3]]
        n = counted[-1][counter] - (counted[0][counter] if since else 0)
        out.append(_zero(f"{part}_{name}", len(found), n, kinds=kinds_found, examples=examples))
    return out


def _zero(name: str, value: int, n: int, **more: Any) -> dict[str, Any]:
    return figure(name, value, n, None, "== 0", value == 0, **more)


def trial(
    loop: Loop, pilot: Pilot, watched: Path, count: int, seed: int, *, quick: bool, only: Sequence[str] = ()
) -> tuple[Killer, list[dict[str, Any]]]:
    """Kill ``count`` nodes, the memory last; return the killer for :func:`losses` and the figures of the time it ran.

    ``quick``: three may be down at once, and none works for long before it is killed. ``only``: kill just these.
    """
    since = time.monotonic()
    killer = Killer(loop, pilot, seed, 3 if quick else 1, only)
    kills = killer.run(count, 0.5 if quick else 3.0)
    loop.client.spin(2.0)
    loop.every_turn = lambda: None
    loop.kill("memory_node")
    return killer, [*figures(kills, count), *watched_figures("kills", watched, since)]
