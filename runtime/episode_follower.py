"""Tells the robot's memory when episodes begin and end, and which memories the policy's actions were based on."""

from __future__ import annotations

from engram.core.contracts import Memory
from engram.core.stamped_buffer import clock_restarted
from engram.core.types import ActionChunk, EpisodeStatus

MOST_IDS = 256
"""The most memory ids that are told of one episode."""

MOST_EPISODES = 8
"""Episodes, beside the one that runs, whose ids are kept: chunks may come before their status, and of no episode."""


class EpisodeFollower:
    """Tells ``memory`` when a task begins and ends, and which memories its actions carried.

    Call it from the thread that owns the memory. A chunk may arrive before the first status of its episode. The first
    status of all may be of an episode that began before this process. A robot that is idle carries out no task: one
    that ran was abandoned.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._episode: int | None = None
        self._name = ""  # of the episode
        self._began_ns = -1  # stamp of the first status of the episode that began last
        self._heard_ns = -1  # stamp of the newest status of the episode
        self._first = True  # no status has come yet
        self._over = (-1, 0)  # the last episode that ended, and when
        self._read: dict[int, dict[str, None]] = {}  # episode -> memory ids, in order
        self._version = ""

    def status(self, status: EpisodeStatus) -> bool:
        """Take in one status and tell whether an episode began or ended; repeated ones change nothing."""
        may_go_on, self._first = self._first and status.step > 0, False
        begins = status.step == 0 and status.stamp_ns != self._began_ns  # after a restart numbers may come again
        name = status.task or status.instruction  # on a robot a goal has words only
        if status.running and (status.episode != self._episode or begins) and not self._is_late(status):
            self._memory.begin_episode(name, status.instruction, status.stamp_ns, may_go_on)
            self._episode, self._name = status.episode, name
            self._began_ns = self._heard_ns = status.stamp_ns
            return True
        if status.running and status.episode == self._episode:
            self._heard_ns = status.stamp_ns
        elif status.state == "idle" and self._episode is not None:
            stamp_ns = max(status.stamp_ns, self._heard_ns)  # a simulation that is back begins at 0
            self._end(self._episode, self._name, "abandoned", stamp_ns)
            self._over = (-1, 0)  # whoever tells of the next one counts anew
            return True
        elif not status.running and status.episode == self._episode:
            self._end(status.episode, name, status.state, status.stamp_ns)
            return True
        return False

    def _end(self, episode: int, name: str, outcome: str, stamp_ns: int) -> None:
        ids = tuple(self._read.get(episode, ()))
        self._memory.end_episode(name, outcome, stamp_ns, ids, self._version)
        self._episode, self._over = None, (episode, stamp_ns)
        self._read = {number: read for number, read in self._read.items() if number > episode}

    def chunk(self, chunk: ActionChunk) -> None:
        """Note what the policy had read for ``chunk``."""
        read = self._read.setdefault(chunk.episode, {})
        read.update(dict.fromkeys(one for one in chunk.memory_ids if len(read) < MOST_IDS))
        self._version = chunk.policy_version
        if len(self._read) > MOST_EPISODES:
            del self._read[next(episode for episode in self._read if episode != self._episode)]

    def _is_late(self, status: EpisodeStatus) -> bool:
        """Tell whether ``status`` was overtaken by the end of its episode; after a restart it is of a new one."""
        episode, ended_ns = self._over
        return (
            status.episode == episode and status.stamp_ns <= ended_ns and not clock_restarted(ended_ns, status.stamp_ns)
        )
