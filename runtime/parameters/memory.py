"""Parameters of the memory node."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engram.core.errors import InvalidInputError
from engram.runtime.parameters import BoundNodeConfig, StepNodeConfig, param


@dataclass(frozen=True)
class MemoryNodeConfig(BoundNodeConfig, StepNodeConfig):
    """Parameters of the memory node."""

    niceness: int = param(5, 0, 19)
    """Stands back for the control path, which takes the newest memory there is; 0 where a policy waits for it."""
    memory: str = "robot"
    """Memory: robot (four stores), graph (the scene graph alone), or package.module:attribute of your own."""
    store: str = "~/.local/share/engram/{robot_id}/memory"
    """Folder of the store; "{robot_id}" is filled in; empty: nothing survives a restart."""
    commit_period_s: float = param(1.0, 0.05, 3600.0)
    """Time between two group commits [s]: at most so much is lost in a crash."""
    query_limit: int = param(5, 1, 1000)
    """Nodes in an answer when the question does not say."""
    places: str = ""
    """YAML file of rooms and places: a list of {layer, label, centre, size} [m]; empty: a table in base_link."""
    frame: str = "base_link"
    """Frame of every place: base_link for an arm on its table, map for a robot that drives (tf tells where it is)."""
    map: str = ""
    """Name and version of that map; a store of another map is refused: see `engram memory reanchor`."""
    base_sigma_m: float = param(0.015, 0.0, 10.0)
    """Standard deviation of the robot's place in `frame` [m]: added to that of what it sees from there."""
    robot: str = "panda_2f85"
    """Robot whose joint states tell where the hand is, and whose embodiment profile the graph shows; none: a robot of
    which nothing is described, such as a mobile base. It has no hand, and joint states are not listened to."""
    track_hand: bool = True
    """Know where the hand is, so that things can be held; false: joint states are not listened to."""
    budget_mb: float = param(256.0, 1.0, 65536.0)
    """RAM of the four stores [MB]; above it the oldest facts and events are merged and dropped."""
    disk_mb: float = param(512.0, 8.0, 1048576.0)
    """Files of the store [MB]; near it the older snapshots are deleted."""
    fsync: bool = False
    """Have each commit survive a power cut: it is written to the disk before it counts, and takes longer."""
    new_belief: float = param(0.1, 0.001, 0.999)
    """Belief in a new object before its first sight is counted: lower where perception errs often."""
    free_ratio: float = param(0.05, 0.001, 0.999)
    """P(missed | there) / P(missed | gone) where the camera saw through its place: lower gives objects up sooner."""
    background_share: float = param(0.05, 0.0, 1.0)
    """Share of one core for the consolidation of habits."""
    utc_offset_h: float = math.nan
    """Local time less UTC [h], -14 .. 14, for times of day in questions; nan (.nan in YAML): the machine's time zone,
    at the date that is asked about."""

    def __post_init__(self) -> None:
        if not (math.isnan(self.utc_offset_h) or -14.0 <= self.utc_offset_h <= 14.0):
            raise InvalidInputError(
                f"utc_offset_h: {self.utc_offset_h}, expected -14..14 hours, or nan for the machine's time zone"
            )

    @property
    def offset_h(self) -> float | None:
        """``utc_offset_h``; None: the machine's time zone."""
        return None if math.isnan(self.utc_offset_h) else self.utc_offset_h
