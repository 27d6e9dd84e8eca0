"""Settings of what becomes of objects from frame to frame."""

from __future__ import annotations

from dataclasses import dataclass, field

from engram.memory.graph.association import AssociationConfig
from engram.memory.graph.fusion import FusionConfig
from engram.memory.graph.grasp import GraspConfig
from engram.memory.graph.localization import LocalisationConfig
from engram.memory.graph.relations import RelationConfig
from engram.memory.graph.visibility import VisibilityConfig


@dataclass(frozen=True)
class TrackerConfig:
    """All settings of the tracker."""

    frame: str = "base_link"
    """The frame of every pose: ``base_link`` for an arm on its table, ``map`` for a robot that drives."""
    absent_below: float = 0.2
    """An object believed less than this is ``absent``."""
    sure_belief: float = 0.5
    """An object believed less than this is not returned as an answer; its history records that."""
    confirmed_after: int = 3
    """An absent object with fewer detections than this is deleted as a false detection, if it was never believed or is
    missed within ``look_s`` of its last detection. An object with fewer detections is not matched with one that is
    absent elsewhere either."""
    most_unsure: int = 1024
    """Of objects with fewer detections than that, which were never believed, so many stay, those seen last; the others
    are deleted as false detections. Else a detector that reports something new in every frame fills the memory."""
    sure_name: float = 0.67
    """Least share of the votes for its label that such a match needs."""
    look_s: float = 10.0
    """Frames this close in time count as one look [s]."""
    grip_s: float = 600.0
    """So long after the last word of a robot's hand what it held is believed to be in it still [s]: as long as its
    place is believed by more than 1/e. A grip whose hand was not told within ``look_s`` hides nothing."""
    fact_m: float = 0.05
    """An object that moved this far begins a new fact [m]."""
    way_m: float = 0.25
    """An agent that moved this far begins a new fact [m]."""
    association: AssociationConfig = field(default_factory=AssociationConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    grasp: GraspConfig = field(default_factory=GraspConfig)
    localisation: LocalisationConfig = field(default_factory=LocalisationConfig)
    relations: RelationConfig = field(default_factory=RelationConfig)
    visibility: VisibilityConfig = field(default_factory=VisibilityConfig)
