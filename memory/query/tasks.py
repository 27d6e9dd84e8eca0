"""Tasks: "what did you do yesterday", "did you put the cube into the bin", "how often did you open the drawer"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Interval, Tasks
from engram.core.types import Evidence
from engram.memory.graph.surroundings import VERBS, summary
from engram.memory.query.context import QueryContext
from engram.memory.query.phrases import age, stamp
from engram.memory.query.registry import register
from engram.memory.query.relation import EMPTY_CONFIDENCE
from engram.memory.query.task_rules import rule
from engram.memory.query.task_words import means
from engram.memory.stores.episodic.episodes import RUNNING, Episode, Event, Past

_SENTENCES = 3
"""Changes that are told of one task."""
_OF_THE_MEMORY = tuple(VERBS[kind] for kind in ("merged", "split", "deleted"))
"""What happened to an entry of the memory, and not to the object."""
_NONE_LIKE = "I have no task like that in my memory"
_NO_STORE = "I keep no record of tasks: this memory holds the scene alone."


@dataclass(frozen=True)
class _Found:
    """The tasks that a question is about."""

    episodes: tuple[Episode, ...]  # oldest first
    sure: tuple[float, ...]  # 0..1, that the words mean each
    missing: int = 0  # at most so many more were forgotten


def answer_tasks(question: Tasks, context: QueryContext) -> MemoryAnswer:
    """Tell what the episodic memory holds of the tasks that the question is about."""
    if context.past is None:
        return MemoryAnswer((), (), _NO_STORE)
    past = context.past()
    found = chosen(question.text, past, context)
    told = {"list": _list, "happened": _list, "unusual": _unusual, "count": _count}.get(question.aspect, _newest)
    return told(question, context, past, found)


def chosen(text: str, past: Past, context: QueryContext) -> _Found:
    """Return the tasks like ``text`` (empty = all) at the time of ``context``."""
    span = spanned(context)
    then = [one for one in past.episodes if _overlaps(one.start_ns, one.end_ns, one.outcome == RUNNING, span)]
    missing = _forgotten(past, then, span)
    if not text:
        return _Found(tuple(then), (1.0,) * len(then), missing)
    like = [one for one in then if means(text, one.instruction) or means(text, one.task)]
    return _Found(tuple(like), tuple(_meant(text, one, context) for one in like), missing)


def spanned(context: QueryContext) -> Interval | None:
    """Return the interval [ns] that ``context`` is about; None = all that there was."""
    if context.valid_ns is None and context.believed_ns is not None:
        return min(0, context.believed_ns), context.believed_ns
    return context.valid_ns


def none_like(question: Tasks, context: QueryContext, past: Past) -> MemoryAnswer:
    """Say that no task is meant, and which one comes nearest."""
    then = " of that time" if context.is_past else ""
    if not question.text:
        known = bool(past.episodes or past.events)
        return MemoryAnswer((), (), f"I did no task{' at that time' if then else ''} that I know of.",
                            EMPTY_CONFIDENCE if known and context.is_past else 0.0)  # fmt: skip
    vector = context.embed(question.text)
    nearest = max(past.episodes, key=lambda one: (float(one.vector @ vector), one.start_ns), default=None)
    hint = "" if nearest is None else f"; the most alike is {_called(nearest)!r}"
    return MemoryAnswer((), (), f"{_NONE_LIKE}{then}{hint}.")


def _meant(text: str, episode: Episode, context: QueryContext) -> float:
    """Return how sure it is that ``text`` means ``episode``, as of objects."""
    vector, named = context.embed(text), episode.task.replace("_", " ")
    alike = float(episode.vector @ vector), float(context.embed(named) @ vector) if named else 0.0
    return min(1.0, max(0.0, *alike) / context.retrieval.cosine_sure)


def _overlaps(start_ns: int, end_ns: int, runs: bool, span: Interval | None) -> bool:
    return span is None or (start_ns <= span[1] and (runs or end_ns >= span[0]))


def _forgotten(past: Past, then: Sequence[Episode], span: Interval | None) -> int:
    """Return how many tasks of ``span``, at most, are kept no more: numbers that are missing among its neighbours."""
    before = [one.number for one in past.episodes if span is not None and one not in then and one.start_ns < span[0]]
    after = [one.number for one in past.episodes if span is not None and one.start_ns > span[1]]
    first, last = max(before, default=0) + 1, min(after, default=past.issued + 1)
    return max(0, last - first - len(then))


# -- sentences -------------------------------------------------------------------------------------------------------


def _list(question: Tasks, context: QueryContext, past: Past, found: _Found) -> MemoryAnswer:
    """Tell the newest tasks in their order, each with its end and what changed during it."""
    outside = _outside(context, past) if question.aspect == "happened" else []
    if not found.episodes and not outside:
        return none_like(question, context, past)
    shown, now_ns = found.episodes[-question.limit :], context.now_ns(question)
    parts = [f"{_ended(one, now_ns)}{_during(one, past, context)}" for one in shown]
    earlier = len(found.episodes) - len(shown)
    count, then = len(found.episodes), " at that time" if context.is_past else ""
    text = f"I did {count or 'no'} task{'' if count == 1 else 's'}{then}"
    if parts:
        text += f"{', the last of them' if earlier else ''}: {'; then '.join(parts)}"
    text += f". Up to {found.missing} more I no longer remember" if found.missing else ""
    events = _most_surprising(outside, question.limit)
    if events:
        text += f". Besides, {'; '.join(_happened(one, context) for one in events)}"
    told = count / (count + found.missing) if count else float(bool(events))
    return _answer(f"{text}.", told, shown, events, past, question)


def _newest(question: Tasks, context: QueryContext, past: Past, found: _Found) -> MemoryAnswer:
    """Tell the newest task that is meant; of "whether", the newest that succeeded if there is one."""
    if not found.episodes:
        return none_like(question, context, past)
    i = len(found.episodes) - 1
    last, verdict = found.episodes[i], ""
    if question.aspect == "whether":
        good = [j for j, one in enumerate(found.episodes) if _succeeded(one)]
        i = good[-1] if good and question.text else i
        verdict = "Yes: " if _succeeded(found.episodes[i]) else _NOT_YET.get(last.outcome, "No: ")
    one, now_ns = found.episodes[i], context.now_ns(question)
    text = f"{verdict}{_ended(one, now_ns)}, {_when(one)}{_during(one, past, context)}"
    if one is not last:
        text += f". The last try: {_ended(last, now_ns)}"
    shown = (one,) if one is last else (one, last)
    sure = found.sure[i] if verdict != "I cannot say: " else 0.0
    return _answer(f"{text}.", sure, shown, (), past, question)


_NOT_YET = {RUNNING: "Not yet: ", "stopped": "I cannot say: ", "abandoned": "I cannot say: "}
"""What to say of a task that did not succeed, by its outcome; "No" of the others."""


def _count(question: Tasks, context: QueryContext, past: Past, found: _Found) -> MemoryAnswer:
    """Tell how often the tasks were tried, and how often they succeeded; stops tell nothing of success."""
    if not found.episodes:
        return none_like(question, context, past)
    judged = [one for one in found.episodes if one.return_ is not None]
    good, tries, last = sum(map(_succeeded, judged)), len(found.episodes), found.episodes[-1]
    times = "once" if tries == 1 else "twice" if tries == 2 else f"{tries} times"
    what = f"tried a task like that {times}" if question.text else f"did {tries} task{'' if tries == 1 else 's'}"
    text = f"I {what}{' at that time' if context.is_past else ''}: {good} of {len(judged)} succeeded"
    text += f", {tries - len(judged)} did not come to an end" if tries > len(judged) else ""
    text += f"; the last, {_ended(last, context.now_ns(question))}"
    text += f". Up to {found.missing} tasks more I no longer remember" if found.missing else ""
    complete = tries / (tries + found.missing)
    return _answer(f"{text}.", min(found.sure) * complete, found.episodes[-question.limit :], (), past, question)


def _unusual(question: Tasks, context: QueryContext, past: Past, _: _Found) -> MemoryAnswer:
    """Tell the changes that surprised most, the most surprising first."""
    span = spanned(context)
    then = [one for one in past.events if _overlaps(one.start_ns, one.end_ns, False, span) and _seen(one, context)]
    events = sorted(_most_surprising(then, question.limit), key=lambda one: -one.surprise)
    if not events:
        return MemoryAnswer((), (), "Nothing changed that I know of.")
    now_ns = context.now_ns(question)
    parts = [f"{_happened(one, context)}, {age(now_ns - one.start_ns)} ago" for one in events]
    text = f"What surprised me most: {'; then '.join(parts)}."
    return _answer(text, 1.0, (), events, past, question)


def _answer(
    text: str, confidence: float, shown: Sequence[Episode], events: Sequence[Event], past: Past, question: Tasks
) -> MemoryAnswer:
    """Return the answer with its tasks, what changed during them, and the ``events`` as evidence."""
    ids = {one.id for one in shown}
    during = [one for one in past.events if one.episode in ids]
    rows = [*(Evidence("episodic", f"{one.text}{_by(one)}", 1.0, one.end_ns, (one.id,)) for one in shown[::-1]),
            *(Evidence("episodic", one.text, 1.0, one.end_ns, (one.id, *one.evidence), place=one.place)
              for one in (*events, *during[::-1]))]  # fmt: skip
    return MemoryAnswer((), (), text, confidence, evidence=tuple(rows[: 2 * question.limit]))


def _called(episode: Episode) -> str:
    return episode.instruction or episode.task.replace("_", " ") or "a task"


def _succeeded(episode: Episode) -> bool:
    return episode.return_ is not None and episode.return_ > 0.5


def _ended(episode: Episode, now_ns: int) -> str:
    """Say how a task ended, how long ago and after how long."""
    if episode.outcome == RUNNING:
        return f"{_called(episode)!r} has been running for {age(now_ns - episode.start_ns)}"
    was = {"stopped": "was stopped", "abandoned": "was abandoned"}.get(episode.outcome, episode.outcome)
    took = age(episode.end_ns - episode.start_ns)
    return f"{_called(episode)!r} {was} {age(now_ns - episode.end_ns)} ago, after {took}"


def _when(episode: Episode) -> str:
    """Say from when to when a task ran, and with which weights."""
    end = "" if episode.outcome == RUNNING else f" to {stamp(episode.end_ns)}"
    return f"from {stamp(episode.start_ns)}{end}{_by(episode)}"


def _by(episode: Episode) -> str:
    return f", with the weights {episode.policy_version}" if episode.policy_version else ""


def _during(episode: Episode, past: Past, context: QueryContext) -> str:
    """Say what changed during a task, or that nothing did, or that it is forgotten."""
    held = [one for one in past.events if one.episode == episode.id]
    sentences = [sentence for one in held for sentence in _seen(one, context)]
    if sentences:
        return f" ({summary(sentences, _SENTENCES)})"
    if episode.events > len(held):
        return " (I no longer remember what changed)"
    return " (I saw nothing change)" if episode.outcome != RUNNING else ""


def _outside(context: QueryContext, past: Past) -> list[Event]:
    """Return the events at the time of ``context`` that belong to no task that is kept."""
    kept, span = {one.id for one in past.episodes}, spanned(context)
    return [one for one in past.events if one.episode not in kept
            and _overlaps(one.start_ns, one.end_ns, False, span) and _seen(one, context)]  # fmt: skip


def _most_surprising(events: Sequence[Event], most: int) -> list[Event]:
    """Return the ``most`` events that surprised most, in their order in time."""
    best = sorted(events, key=lambda one: (-one.surprise, -one.start_ns))[:most]
    return sorted(best, key=lambda one: one.start_ns)


def _happened(event: Event, context: QueryContext) -> str:
    return summary(_seen(event, context), _SENTENCES)


def _seen(event: Event, context: QueryContext) -> list[str]:
    """Return the sentences of an event that tell of the world: about objects that were believed once."""
    history = context.tracker.history
    sure = history.ever_sure(event.node_ids)
    labels = {fact.label for node_id in event.node_ids if sure[node_id] for fact in history.of(node_id)}
    heads = [f"the {label} " for label in labels]
    about = [(one, one.removeprefix(head)) for head in heads for one in event.sentences if one.startswith(head)]
    told = {one for one, rest in about if not rest.startswith(_OF_THE_MEMORY)}
    return [one for one in event.sentences if one in told]


register(Tasks, answer_tasks, rule, priority=11)
