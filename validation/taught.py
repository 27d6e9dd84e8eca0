"""Which tasks a learner was taught since it began: none of them may be unlearnt, though no checkpoint's card names it.

Goals of the robots are words. A kind of goal counts where the simulation has a task with such words, and where it went
well at least once: what never did cannot be unlearnt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.registry import is_spec
from engram.learning.experience.reader import ExperienceReader, experience_file
from engram.learning.practised import Practised
from engram.learning.workspace import EXPERIENCE, PRACTICE
from engram.sim.tasks import SUITES, task_for

TAUGHT = "taught.json"
"""File of the tasks by which a learner's candidates were judged beside the card's, in the gate's folder."""


def kept_taught(gate: Path) -> tuple[str, ...]:
    """Return the tasks that :func:`keep_taught` noted in the folder ``gate``.

    Raises:
        StoreError: the file is damaged.
        InvalidInputError: it names a shipped task that does not exist.
    """
    path = gate / TAUGHT
    try:
        tasks = tuple(map(str, json.loads(path.read_text())["tasks"])) if path.exists() else ()
    except DAMAGED as error:
        raise StoreError(f"{path}: cannot be read: {error}; remove it: the next validation writes it again") from error
    check_there(path, tasks)
    return tasks


def check_there(file: Path, tasks: Sequence[str]) -> None:
    """Raise InvalidInputError for a shipped task that ``file`` names and that does not exist: nobody could try it.

    Those of a user's own are looked for where they are tried: whoever asks need not be able to import them.
    """
    gone = [task for task in tasks if not is_spec(task) and task not in SUITES["all"]]
    if gone:
        raise InvalidInputError(
            f"{file}: there is no task {', '.join(map(repr, gone))} any more, so nobody can tell whether it is "
            f"unlearnt; take it out of the file if it may be; valid: {', '.join(SUITES['all'])}"
        )


def keep_taught(gate: Path, tasks: Sequence[str]) -> None:
    """Note ``tasks`` in the folder ``gate``: they count when the episodes that taught them are long gone."""
    kept = kept_taught(gate)
    known = tuple(dict.fromkeys((*kept, *tasks)))
    if known != kept:
        write_atomic(gate / TAUGHT, (json.dumps({"tasks": known}) + "\n").encode())


def taught_tasks(learner: Path, gate: Path, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tasks that the learner was taught: by the robots' goals, and by practice in simulation.

    Args:
        learner: the learner's folder; it may be running.
        gate: folder with what was noted before.
        also: further tasks that words may mean, ``package.module:attribute``.

    Raises:
        StoreError: experience, findings or notes cannot be read.
    """
    said: dict[str, None] = {}
    if experience_file(learner / EXPERIENCE).exists():
        known = ExperienceReader(learner / EXPERIENCE).catalogue()
        said = dict.fromkeys(info.instruction for info in known if info.success)
    found = [*kept_taught(gate)]
    for words in said:
        with suppress(InvalidInputError):  # no task of the simulation has such words
            found.append(task_for(words, also))
    findings = Practised(learner / PRACTICE).findings()
    found += [one.task for one in findings.found] if findings is not None else []
    return tuple(dict.fromkeys(found))
