"""The Learning and Gate tabs: what the learner and the gate say of themselves, and why weights were let drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import viser

from engram.core.types import STAGES
from engram.runtime.curve_note import CURVE, read_curve_note
from engram.runtime.health import STAGE_TIMES
from engram.viewer.learning_curve import curve_html
from engram.viewer.markup import heading, paragraph, shortened, text_table
from engram.viewer.values import Candidate, Judged, NodeState

LEARNER_PREFIX = "learner "
SAID = 60
"""Values of a node that its tab shows; the Nodes tab has more."""
NO_GATE = "No gate of this robot runs, or it runs beside the learner of another robot."
NO_LEARNER = (
    "No learner of this robot runs. Start it with the launch argument learner:=true. A robot that was started with "
    "learner_of has its learner on the page of the other robot."
)
ABOUT_GATE = (
    "The gate tries a candidate out in simulation against the weights that drive. The learner's parameter promote says "
    "what counts. gated: what the gate promotes may drive. manual: an operator decides. auto: every candidate drives "
    "at once, unproven."
)
DRIVES = ("canary", "approved")
"""Stages of weights that were let drive."""


def learner_html(learner: NodeState | None, candidates: Sequence[Candidate]) -> str:
    """Return how goals went, the learner's counters and the weights it announced, newest first."""
    if learner is None:
        return paragraph(NO_LEARNER) + (candidates_html(candidates) if candidates else "")
    curve = curve_html(read_curve_note(learner.values.get(CURVE, "")))
    return curve + heading("Learner") + said_html(learner) + candidates_html(candidates)


def said_html(node: NodeState) -> str:
    """Return what a node says of itself, in its own order: all but stage times, counts of problems, and the curve."""
    rows = [("state", f"{node.level}: {shortened(node.message)}")]
    for key, value in node.values.items():
        if key not in ("state", CURVE) and not key.startswith("problems ") and not key.endswith(STAGE_TIMES):
            rows.append((shortened(key.removeprefix(LEARNER_PREFIX).replace("_", " ")), shortened(value)))
    return text_table(rows[:SAID])


def candidates_html(candidates: Sequence[Candidate]) -> str:
    """Return the announced weights as a table."""
    if not candidates:
        return heading("Weights announced") + paragraph("none since this page began")
    rows = [(c.version, c.stage, c.parent or "none", _metrics(c.metrics)) for c in candidates]
    return heading("Weights announced") + text_table(rows, ("version", "stage", "trained from", "metrics"))


def _metrics(metrics: Mapping[str, object]) -> str:
    parts = [f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in metrics.items() if k != "parent"]
    return ", ".join(parts)


def gate_html(candidates: Sequence[Candidate], judged: Sequence[Judged] = (), gate: NodeState | None = None) -> str:
    """Return how weights come to drive, what was announced, what the gate found, and why each of the approved drives.

    Args:
        candidates: weights that were announced.
        judged: newest first; of a version only the newest counts.
        gate: what the gate node says of itself; None: it never did.
    """
    counts = {stage: sum(c.stage == stage for c in candidates) for stage in STAGES}
    told = ", ".join(f"{n} {stage.replace('_', ' ')}" for stage, n in counts.items() if n)
    text = paragraph(ABOUT_GATE) + (heading("Gate") + said_html(gate) if gate is not None else paragraph(NO_GATE))
    text += paragraph(f"Announced since this page began: {told}.") if told else ""
    newest = {one.version: one for one in reversed(judged)}
    if newest:
        found = [(j.version, j.decision.replace("_", " "), str(j.pairs), j.reason) for j in newest.values()]
        text += text_table(found[::-1], ("candidate", "gate", "pairs of episodes", "because"))
        text += "".join(tasks_html(one) for one in reversed(newest.values()))
    rows = [(c.version, str(c.metrics.get("approved_because", ""))) for c in candidates if c.stage in DRIVES]
    return text + (text_table(rows, ("let drive", "because")) if rows else "")


def tasks_html(judged: Judged) -> str:
    """Return what the gate found of a candidate task by task; empty while it is not decided."""
    if not judged.tasks:
        return ""
    rows = [
        (shortened(one.task), str(one.pairs), str(one.candidate), str(one.approved), one.decision)
        for one in judged.tasks
    ]
    header = ("task", "pairs", "candidate succeeded in", "what drives in", "candidate is")
    return heading(f"{shortened(judged.version)}, task by task") + text_table(rows, header)


class LearningTabs:
    """Two tabs of ``group``."""

    def __init__(self, server: viser.ViserServer, group: viser.GuiTabGroupHandle) -> None:
        with group.add_tab("Learning"):
            self._learner = server.gui.add_html(learner_html(None, ()))
        with group.add_tab("Gate"):
            self._gate = server.gui.add_html(gate_html(()))

    def show(
        self,
        learner: NodeState | None,
        gate: NodeState | None,
        candidates: Sequence[Candidate],
        judged: Sequence[Judged],
    ) -> None:
        """Show what learner and gate say of themselves (None: nothing was heard), and what the gate found."""
        self._learner.content = learner_html(learner, candidates)
        self._gate.content = gate_html(candidates, judged, gate)
