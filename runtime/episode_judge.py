"""Asks a reward source about the running episode, with what the memory believes of the things that its words name."""

from __future__ import annotations

from engram.core.contracts import Memory
from engram.core.questions import FindObject
from engram.core.types import CONFIRMED, Features, GraphUpdate, Hand, SceneNode, Verdict
from engram.learning.rewards.contract import Moment, RewardSource

CANDIDATES = 16
"""Objects that are looked at for each thing that the words name, as the episode begins; so is what appears or changes
later."""


class EpisodeJudge:
    """Follows the objects of one episode after another. Call it from the thread that owns ``memory``.

    It reads the changes of the scene graph, not the whole graph: a frame costs the same however much is remembered.
    """

    def __init__(self, memory: Memory, source: RewardSource) -> None:
        self._memory, self._source = memory, source
        self._known: dict[str, SceneNode] = {}
        self._episode: tuple[int, str] | None = None

    def judge(
        self,
        episode: int,
        instruction: str,
        update: GraphUpdate,
        hand: Hand | None,
        features: Features | None = None,
    ) -> Verdict:
        """Return the verdict after ``update``, a change of the memory at its stamp.

        The episode begins here if :meth:`begin` was not told of it.
        """
        if (episode, instruction) != self._episode:
            self.begin(episode, instruction)
        if update.shifted_ns:
            self._source.shift(update.shifted_ns, update.stamp_ns)
        self._known |= {node.id: node for node in update.nodes if node.layer == "object"}
        for name in update.deleted_nodes:
            self._known.pop(name, None)
        return self._source.judge(Moment(update.stamp_ns, episode, tuple(self._known.values()), hand, features))

    def begin(self, episode: int, instruction: str) -> None:
        """Begin an episode; another may have had its number, before its sender was restarted."""
        self._episode = (episode, instruction)
        self._source.begin(instruction)
        found = [self._memory.query(FindObject(text=thing, limit=CANDIDATES)) for thing in self._source.things]
        self._known = {node.id: node for answer in found for node in answer.nodes if node.layer == "object"}


HOLD_S = 0.2
"""For so long a success is confirmed without a break before it ends an episode."""
HOLD_LOOKS = 3
"""And in so many looks at least, however slowly they come."""
BREAK_S = 1.0
"""Looks that are farther apart than this are a break: nobody saw what happened in between."""


class VerdictHold:
    """Tells when the success of an episode has been confirmed for ``hold_s``, whatever happened in between."""

    def __init__(self, hold_s: float = HOLD_S, looks: int = HOLD_LOOKS, break_s: float = BREAK_S) -> None:
        self._hold_ns, self._break_ns, self._least = round(hold_s * 1e9), round(break_s * 1e9), looks
        self._since_ns, self._newest_ns = 0, -(10**18)  # of the running confirmation, and of any look
        self._looks = 0  # that confirmed it; 0 = none runs

    def take(self, verdict: Verdict) -> bool:
        """Take the next verdict; return whether the success is certain by now. One that comes late counts for nothing.

        One that is older than the newest by more than a break is the first of a clock that began anew.
        """
        stamp_ns = verdict.stamp_ns
        if 0 <= self._newest_ns - stamp_ns <= self._break_ns:
            return False
        broken = abs(stamp_ns - self._newest_ns) > self._break_ns
        self._newest_ns = stamp_ns
        if verdict.outcome != CONFIRMED:
            self._looks = 0
            return False
        if not self._looks or broken:
            self._since_ns, self._looks = stamp_ns, 0
        self._looks += 1
        return self._looks >= self._least and stamp_ns - self._since_ns >= self._hold_ns
