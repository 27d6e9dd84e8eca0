"""Which tasks a learner was taught since it began: none of them may be unlearnt, though no checkpoint's card names it.

Goals of the robots are words. A kind of goal counts where the simulation has a task with such words, and where the
learner's policy did it well by itself at least once: what never went well cannot be unlearnt. What a person helped
with, or another policy did, shows nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.registry import is_spec, split_options
from engram.core.types import Lineage
from engram.learning.experience.eligibility import why_not
from engram.learning.experience.reader import ExperienceReader, experience_file
from engram.learning.practised import Practised
from engram.learning.weights.library import WeightsLibrary
from engram.learning.workspace import EXPERIENCE, PRACTICE
from engram.sim.tasks import SUITES, task_for

TAUGHT = "taught.json"
"""File of the tasks by which a learner's candidates were judged beside the card's, in the gate's folder."""
Told = Callable[[InvalidInputError], None]
"""Is told of a task that nobody can try, and how to mend that."""


def refuse(error: InvalidInputError) -> None:
    """Raise ``error``: what is told of a task that nobody can try where somebody is there to mend it."""
    raise error


def kept_taught(gate: Path, told: Told = refuse) -> tuple[str, ...]:
    """Return the tasks that :func:`keep_taught` noted in the folder ``gate``, without options.

    Args:
        gate: the folder.
        told: is told of an entry that is no task, or a shipped one that does not exist; it is passed over then.

    Raises:
        StoreError: the file is damaged.
        InvalidInputError: of ``told``.
    """
    found: dict[str, None] = {}
    for entry in _noted(gate):
        try:
            if not isinstance(entry, str):
                raise InvalidInputError(f"{gate / TAUGHT}: {entry!r} is no name of a task; take it out of the file")
            task = split_options(entry)[0]
            check_there(gate / TAUGHT, (task,))
            found[task] = None
        except InvalidInputError as error:
            told(error)
    return tuple(found)


def _noted(gate: Path) -> list[Any]:
    """Return what stands in the file, whatever it is."""
    path = gate / TAUGHT
    try:
        noted = json.loads(path.read_text())["tasks"] if path.exists() else []
        if not isinstance(noted, list):
            raise ValueError(f"tasks is {noted!r}, expected a list")
    except DAMAGED as error:
        raise StoreError(f"{path}: cannot be read: {error}; remove it: the next validation writes it again") from error
    return noted


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
    noted = _noted(gate)
    new = [task for task in dict.fromkeys(tasks) if task not in noted]
    if new:
        write_atomic(gate / TAUGHT, (json.dumps({"tasks": [*noted, *new]}) + "\n").encode())


def taught_tasks(learner: Path, gate: Path, also: Sequence[str] = (), told: Told = refuse) -> tuple[str, ...]:
    """Return the tasks that the learner was taught, without options: by the robots' goals, and by practice.

    Args:
        learner: the learner's folder; it may be running.
        gate: folder with what was noted before.
        also: further tasks that words may mean, ``package.module:attribute``.
        told: as of :func:`kept_taught`.

    Raises:
        StoreError: experience, weights, findings or notes cannot be read.
        InvalidInputError: of ``told``.
    """
    found = dict.fromkeys(kept_taught(gate, told))
    _add_goals(found, learner, also)
    findings = Practised(learner / PRACTICE).findings()
    practised = [split_options(one.task)[0] for one in findings.found] if findings is not None else []
    return tuple(dict.fromkeys((*found, *practised)))


def _add_goals(found: dict[str, None], learner: Path, also: Sequence[str]) -> None:
    """Add to ``found`` the tasks of the goals that the learner's policy reached by itself."""
    lineage = _lineage(learner)
    if lineage is None or not experience_file(learner / EXPERIENCE).exists():
        return
    reader = ExperienceReader(learner / EXPERIENCE)
    meant: dict[str, str] = {}  # the task of these words; empty: the simulation has none
    for info in reader.catalogue():
        if not info.success or why_not(info.sources, lineage, blind=True):
            continue
        if info.instruction not in meant:
            try:
                meant[info.instruction] = task_for(info.instruction, also)
            except InvalidInputError:
                meant[info.instruction] = ""
        task = meant[info.instruction]
        if task and task not in found and _alone(reader, info.number):
            found[task] = None


def _alone(reader: ExperienceReader, number: int) -> bool:
    """Tell whether nobody helped in episode ``number``; of a damaged record nobody can tell."""
    try:
        steps = reader.episode(number)
    except StoreError:
        return False
    return bool(steps) and not any(step.intervention for step in steps)


def _lineage(learner: Path) -> Lineage | None:
    """Return the lineage of the learner's newest weights; None: there are none."""
    manifests = WeightsLibrary(learner / "weights", read_only=True).manifests().values()
    return next((one.lineage for one in reversed(manifests) if one.lineage is not None), None)
