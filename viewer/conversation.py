"""Questions to the memory and its answers, which stay on the page: the newest exchange first."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass

import viser

from engram.core.words import WORDS_MAX
from engram.viewer.markup import duration
from engram.viewer.values import Answer

EXCHANGES_SHOWN = 20


def question_html(question: str) -> str:
    """Return a question as a speech bubble."""
    return f'<div class="engram-question">{html.escape(question)}</div>'


def answer_html(answer: Answer) -> str:
    """Return an answer as a speech bubble: the sentence, its confidence and age, and what it rests on."""
    sure = f"confidence {100 * answer.confidence:.0f} %" if answer.confidence > 0 else ""
    ago = f"evidence {duration(answer.age_s)} old" if answer.age_s >= 0 else ""
    facts = ", ".join(one for one in (sure, ago) if one)
    below = f'<div class="engram-muted">{facts}</div>' if facts else ""
    rest = "".join(f"<li>{html.escape(one)}</li>" for one in answer.details if one)
    return f'<div class="engram-answer">{html.escape(answer.text)}{below}{f"<ul>{rest}</ul>" if rest else ""}</div>'


@dataclass
class Exchange:
    """The GUI elements of one question and its answer."""

    question: viser.GuiHtmlHandle
    answer: viser.GuiHtmlHandle
    show: viser.GuiButtonHandle

    def remove(self) -> None:
        """Take it off the page."""
        for handle in (self.question, self.answer, self.show):
            handle.remove()


class Conversation:
    """The text box, and all questions and answers below it; ``on_show`` is called with an answer to be shown in 3D."""

    def __init__(
        self, server: viser.ViserServer, ask: Callable[[str], None], on_show: Callable[[Answer], None]
    ) -> None:
        self._gui, self._ask, self._on_show = server.gui, ask, on_show
        self._exchanges: list[Exchange] = []  # oldest first
        self._count = 0
        self._waiting: list[tuple[str, Exchange]] = []  # questions without an answer, oldest first
        form = self._gui.add_form(None)
        with form:
            self._question = self._gui.add_text("Question", "", hint='For example: "where is the red cube?"')
        send = self._gui.add_button("Ask", icon=viser.Icon.MESSAGE_QUESTION, hint="Ask the memory (memory/query).")
        self._folder = self._gui.add_folder("Questions and answers, newest first", visible=False)
        form.on_submit(lambda _: self._send())
        send.on_click(lambda _: self._send())

    def _send(self) -> None:
        words = self._question.value.strip()
        if not words:
            return
        self._question.value = ""  # type: ignore[misc]  # viser has a setter
        if len(words) > WORDS_MAX:
            why = f"Not asked: {len(words)} characters, at most {WORDS_MAX} are taken."
            self._add(f"{words[:60]} ...").answer.content = answer_html(Answer(words, why))
            return
        self._waiting.append((words, self._add(words)))
        self._ask(words)

    def _add(self, words: str) -> Exchange:
        self._count += 1
        newest = -3.0 * self._count  # smaller orders stand higher
        self._folder.visible = True
        with self._folder:
            exchange = Exchange(
                self._gui.add_html(question_html(words), order=newest),
                self._gui.add_html('<div class="engram-answer">...</div>', order=newest + 1),
                self._gui.add_button("Show in 3D", color="gray", visible=False, order=newest + 2),
            )
        self._exchanges.append(exchange)
        if len(self._exchanges) > EXCHANGES_SHOWN:
            gone = self._exchanges.pop(0)
            self._waiting = [(words, one) for words, one in self._waiting if one is not gone]
            gone.remove()
        return exchange

    def answer(self, answer: Answer) -> None:
        """Put ``answer`` below the oldest question of its words that waits for one: some never get an answer."""
        at = next((at for at, (words, _) in enumerate(self._waiting) if words == answer.question.strip()), None)
        exchange = self._waiting.pop(at)[1] if at is not None else self._add(answer.question)
        exchange.answer.content = answer_html(answer)
        if answer.place is not None:
            exchange.show.label = f"Show the {answer.label} in 3D" if answer.label else "Show the place in 3D"
            exchange.show.visible = True
            exchange.show.on_click(lambda _: self._on_show(answer))
