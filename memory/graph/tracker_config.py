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
    """All settings of what becomes of objects."""

    frame: str = "base_link"
    """The frame of every pose: ``base_link`` for an arm on its table, ``map`` for a robot that drives."""
    absent_below: float = 0.2
    """An object believed less than this is ``absent``."""
    sure_belief: float = 0.5
    """An object believed less than this is no answer, and the past remembers that it was none."""
    confirmed_after: int = 3
    """An object given up with fewer sights than this was a false detection, if it never was an answer or is given up
    within ``look_s`` of its last sight: it is deleted, and the delta says so. Nor does one with fewer sights take over
    the identity of an object that is gone elsewhere."""
    sure_name: float = 0.67
    """Least share of the votes for its label that such a takeover needs."""
    look_s: float = 10.0
    """Frames this near in time are of one look: what they say of an object holds for all of it [s]."""
    fact_m: float = 0.05
    """An object that went this far begins a new fact."""
    way_m: float = 0.25
    """So does an agent that went this far."""
    association: AssociationConfig = field(default_factory=AssociationConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    grasp: GraspConfig = field(default_factory=GraspConfig)
    localisation: LocalisationConfig = field(default_factory=LocalisationConfig)
    relations: RelationConfig = field(default_factory=RelationConfig)
    visibility: VisibilityConfig = field(default_factory=VisibilityConfig)
