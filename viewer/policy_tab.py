"""The Policy tab: the policy that drives, another one to choose, and how the last episodes ended."""

from __future__ import annotations

from collections.abc import Sequence

import viser

from engram.runtime.policy_notes import CORRECTED_BY, MISTAKEN
from engram.viewer.encodable import choices
from engram.viewer.markup import heading, paragraph, text_table
from engram.viewer.values import Outcome, PageActions, PolicyState

NO_CHOICE = "keep"


def policy_html(policy: PolicyState, outcomes: Sequence[Outcome]) -> str:
    """Return what drives and how the last episodes ended, newest first."""
    if not policy.name:
        return paragraph("The policy node has not reported yet.")
    rows = [
        ("policy", policy.name),
        ("weights", policy.version),
        ("memory of this episode", policy.remembered or "none"),
        (CORRECTED_BY, policy.corrected_by or "nothing"),
    ]
    if policy.mistaken:
        rows.append((MISTAKEN, policy.mistaken))
    return heading("Drives now") + text_table(rows) + outcomes_html(outcomes)


def outcomes_html(outcomes: Sequence[Outcome]) -> str:
    """Return the last episodes as a table; empty without any."""
    if not outcomes:
        return ""
    succeeded = sum(o.state == "succeeded" for o in outcomes)
    rows = [(str(o.episode), o.state, str(o.steps), o.instruction, o.policy) for o in outcomes]
    title = f"Last {len(outcomes)} episodes: {succeeded} succeeded"
    return heading(title) + text_table(rows, ("episode", "outcome", "steps", "instruction", "policy"))


class PolicyTab:
    """Offers the policies that the policy node names, and tells which one a visitor chose."""

    def __init__(self, server: viser.ViserServer, actions: PageActions) -> None:
        self._gui = server.gui
        self._html = self._gui.add_html(policy_html(PolicyState(), ()))
        self._choice = self._gui.add_dropdown("Other policy", (NO_CHOICE,), visible=False)
        self._apply = self._gui.add_button(
            "Drive with it from the next episode on", color="gray", visible=False,
            hint="Sets the policy node's parameter 'policy'.",
        )  # fmt: skip
        self._reply = self._gui.add_html("")
        self._actions = actions
        self._apply.on_click(lambda _: self._choose())

    def _choose(self) -> None:
        if self._choice.value != NO_CHOICE:
            self._actions.choose_policy(self._choice.value)

    def show(self, policy: PolicyState, outcomes: Sequence[Outcome]) -> None:
        """Show what drives and what else there is."""
        self._html.content = policy_html(policy, outcomes)
        offered = choices((NO_CHOICE, *policy.available))
        if offered != self._choice.options:
            self._choice.options = offered
            self._choice.visible = self._apply.visible = len(offered) > 1

    def reply(self, text: str) -> None:
        """Say what became of the visitor's choice."""
        self._reply.content = paragraph(text)
