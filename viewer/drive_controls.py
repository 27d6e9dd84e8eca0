"""Driving the robot: what it does now, stop and release above all tabs, and the Drive tab with the instruction."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import viser

from engram.core.words import WORDS_MAX
from engram.viewer.by_hand import ByHand
from engram.viewer.encodable import choices
from engram.viewer.markup import paragraph
from engram.viewer.running_goal import RunningGoal
from engram.viewer.values import PageActions

NO_EXAMPLE = "choose an example"
REPLIES_SHOWN = 6
TOLD = (
    ("cancel", "Cancel", "End the instruction: the arm stays where it is (service execute_task/cancel)."),
    ("succeeded", "It is done", "End the instruction as succeeded, for the learner."),
    ("failed", "It went wrong", "End the instruction as failed, for the learner."),
)
"""What a visitor says of the instruction that is carried out: name, label and hint of a button."""
GOES_ON = "A goal that still runs goes on at once."
HOW_TO_RELEASE = f'To let it move again, press "Release stop" (service safety/reset). {GOES_ON}'


class SafetyControls:
    """Stop and release, always in reach, and whether the robot is stopped."""

    def __init__(self, server: viser.ViserServer, actions: PageActions) -> None:
        gui = server.gui
        self._stop = gui.add_button("STOP", color="red", icon=viser.Icon.HAND_STOP,
                                    hint="Stop at once and hold until released (service safety/stop).")  # fmt: skip
        self._release = gui.add_button("Release stop", color="gray", icon=viser.Icon.PLAYER_PLAY,
                                       hint=f"Let the robot move again (service safety/reset). {GOES_ON}")  # fmt: skip
        self._goal = gui.add_html("")  # below the buttons: as it grows, they stay where they are
        self.show_goal(RunningGoal().html())
        self._stop.on_click(lambda _: actions.stop())
        self._release.on_click(lambda _: actions.release())
        self.reason = ""  # why the robot is stopped; "" = it is not

    def show_goal(self, goal: str) -> None:
        """Show what the robot is doing, as HTML of :class:`RunningGoal`."""
        self._goal.content = f'<div class="engram-goal">{goal}</div>'

    def show_stopped(self, reason: str) -> None:
        """Mark the release button while the robot is stopped."""
        if reason != self.reason:
            self._release.color = "green" if reason else "gray"
            self.reason = reason


class DriveTab:
    """Instruction, examples, and what became of the last instructions."""

    def __init__(self, server: viser.ViserServer, actions: PageActions, stopped: Callable[[], str]) -> None:
        self._gui, self._actions, self._stopped = server.gui, actions, stopped
        self._replies: deque[str] = deque(maxlen=REPLIES_SHOWN)  # newest first
        form = self._gui.add_form(None)
        with form:
            self._instruction = self._gui.add_text("Instruction", "", hint="What the robot shall do, in words.")
        send = self._gui.add_button("Do it", icon=viser.Icon.SEND, hint="Start a task with these words (execute_task).")
        for how, label, hint in TOLD:
            button = self._gui.add_button(label, color="gray", hint=hint)
            button.on_click(partial(self._tell, how))
        self._examples = self._gui.add_dropdown("Examples", (NO_EXAMPLE,), visible=False)
        self.by_hand = ByHand(server)
        self._log = self._gui.add_html(paragraph("Write what the robot shall do, then press Enter or Do it."))
        form.on_submit(lambda _: self._send())
        send.on_click(lambda _: self._send())
        self._examples.on_update(lambda _: self._take_example())

    def _tell(self, how: str, _: object) -> None:
        self._actions.tell(how)

    def _take_example(self) -> None:
        if self._examples.value != NO_EXAMPLE:
            self._instruction.value = self._examples.value  # type: ignore[misc]  # viser has a setter

    def _send(self) -> None:
        words = self._instruction.value.strip()
        if not words:
            self.reply("Write what the robot shall do first.")
        elif len(words) > WORDS_MAX:
            self.reply(f'"{words[:60]} ..." was not sent: {len(words)} characters, at most {WORDS_MAX} are taken.')
        elif reason := self._stopped():
            self.reply(f'"{words}" was not sent: the robot is stopped ({reason}). {HOW_TO_RELEASE}')
        else:
            self._actions.instruct(words)

    def show_examples(self, instructions: Sequence[str]) -> None:
        """Offer the instructions that the running tasks understand."""
        wanted = choices((NO_EXAMPLE, *instructions))
        if wanted != self._examples.options:
            self._examples.options = wanted
            self._examples.visible = len(wanted) > 1

    def reply(self, text: str) -> None:
        """Say what became of a wish, above what was said before."""
        self._replies.appendleft(text)
        first, *older = self._replies
        self._log.content = paragraph(first) + "".join(paragraph(one, "#868e96") for one in older)
