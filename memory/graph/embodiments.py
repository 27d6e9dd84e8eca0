"""The embodiment profiles of agents, bitemporal as every fact: since when a robot has been so, and when that was
believed (RoboOS-NeXT keeps one of each robot beside its scene graph; Tan et al., 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engram.core.types import Embodiment, Record, Skill
from engram.memory.storage.embodiment_json import embodiment_from
from engram.memory.storage.fact_columns import FOREVER

_VERSIONS = 16
"""Profiles kept of one agent, the newest."""
_VERSION_BYTES, _SKILL_BYTES = 1500, 400
"""RAM of a profile without its skills and of a skill, with their rows in the store; tracemalloc."""


@dataclass(frozen=True)
class Version:
    """One profile of one agent; it holds until the next one begins."""

    valid_from: int
    believed_from: int
    believed_to: int
    embodiment: Embodiment


class Embodiments:
    """What is known of each agent, by node id, and which of them is the robot whose memory this is."""

    def __init__(self) -> None:
        self.own = ""  # node id; empty = nobody introduced itself
        self._versions: dict[str, list[Version]] = {}
        self.changed: set[str] = set()

    def state(self, node_id: str, embodiment: Embodiment, stamp_ns: int, believed_ns: int | None = None) -> bool:
        """Say what ``node_id`` is from ``stamp_ns`` on, with the skills it had; return whether that is news."""
        known = self.at(node_id)
        if known is not None and replace(known, skills=()) == replace(embodiment, skills=()):
            return False
        if known is not None and not embodiment.skills:
            embodiment = replace(embodiment, skills=known.skills)
        believed = stamp_ns if believed_ns is None else believed_ns
        versions = [*self._versions.get(node_id, ()), Version(stamp_ns, believed, FOREVER, embodiment)]
        self._versions[node_id] = versions[-_VERSIONS:]
        self.changed.add(node_id)
        return True

    def learnt(self, node_id: str, skills: Sequence[Skill]) -> bool:
        """Replace the skills in the newest profile of ``node_id``; return whether they differ. Counts have no past."""
        versions = self._versions.get(node_id)
        if not versions or versions[-1].embodiment.skills == tuple(skills):
            return False
        versions[-1] = replace(versions[-1], embodiment=replace(versions[-1].embodiment, skills=tuple(skills)))
        self.changed.add(node_id)
        return True

    def at(self, node_id: str, valid_ns: int = FOREVER - 1, believed_ns: int = FOREVER - 1) -> Embodiment | None:
        """Return what ``node_id`` was at ``valid_ns``, as believed at ``believed_ns``; None = not known."""
        fits = [v for v in self._versions.get(node_id, ()) if v.valid_from <= valid_ns
                and v.believed_from <= believed_ns < v.believed_to]  # fmt: skip
        return max(fits, key=lambda v: (v.valid_from, v.believed_from)).embodiment if fits else None

    def retract(self, node_id: str, stamp_ns: int) -> None:
        """Believe nothing of ``node_id`` from ``stamp_ns`` on; what was believed stays on record."""
        versions = self._versions.get(node_id, [])
        self._versions[node_id] = [replace(v, believed_to=min(v.believed_to, stamp_ns)) for v in versions]
        self.changed.add(node_id)

    def shift(self, by_ns: int) -> None:
        """Move every time: the clock began anew."""
        for node_id, versions in self._versions.items():
            self._versions[node_id] = [
                Version(
                    v.valid_from + by_ns, v.believed_from + by_ns,
                    v.believed_to if v.believed_to == FOREVER else v.believed_to + by_ns,
                    replace(v.embodiment, skills=tuple(
                        s if s.last_ns == -1 else replace(s, last_ns=s.last_ns + by_ns) for s in v.embodiment.skills
                    )),
                )
                for v in versions
            ]  # fmt: skip
            self.changed.add(node_id)

    def bytes_used(self) -> int:
        """Return the RAM used by the profiles [bytes]."""
        every = [v for versions in self._versions.values() for v in versions]
        return _VERSION_BYTES * len(every) + _SKILL_BYTES * sum(len(v.embodiment.skills) for v in every)

    # -- the store -----------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Return the records that changed since :meth:`forget_changes`."""
        return [Record(node_id, self._data(node_id)) for node_id in sorted(self.changed)]

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self.changed = set()

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored profiles."""
        for record in records:
            self._versions[record.key] = [
                Version(valid_from, believed_from, believed_to, embodiment_from(data))
                for valid_from, believed_from, believed_to, data in record.data["versions"]
            ]
            if record.data["own"]:
                self.own = record.key

    def _data(self, node_id: str) -> dict[str, Any]:
        versions = [[v.valid_from, v.believed_from, v.believed_to, asdict(v.embodiment)]
                    for v in self._versions[node_id]]  # fmt: skip
        return {"own": node_id == self.own, "versions": versions}


def words(embodiment: Embodiment) -> list[str]:
    """Return what a profile says, one feature each: "mobile base", "front camera", "gripper", "arm", ..."""
    found = [embodiment.kind, "mobile base" if embodiment.mobile_base else "fixed base", *embodiment.sensors]
    if embodiment.joints:
        found.append(f"arm of {embodiment.joints} joints")
    if embodiment.reach_m:
        found.append(f"reach of {embodiment.reach_m:.2f} m")
    if embodiment.gripper_m:
        found.append(f"gripper that opens {embodiment.gripper_m * 100:.1f} cm")
    if embodiment.payload_kg:
        found.append(f"payload of {embodiment.payload_kg:g} kg")
    return found


def described(body: Embodiment | None) -> str:
    """Say what a profile says, "is an arm: fixed base, front camera, ...; open drawer 3 of 4 (v1)"."""
    if body is None:
        return "has not introduced itself"
    kind, *rest = words(body)
    skills = [f"{s.task.replace('_', ' ')} {s.successes} of {s.n} ({s.policy_version or 'unnamed'})"
              for s in body.skills]  # fmt: skip
    text = f"is {'an' if kind[0] in 'aeiou' else 'a'} {kind}: {', '.join(rest)}"
    return f"{text}; succeeded in {', '.join(skills)}" if skills else text
