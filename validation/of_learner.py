"""What a learner's folder holds for the gate: the candidate, what drives now, and the tasks to judge them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from engram.core.durable import write_atomic
from engram.core.errors import EngramError, InvalidInputError, WeightsError
from engram.core.types import Lineage
from engram.learning.weights.library import WeightsLibrary
from engram.sim.tasks import expand, task_class
from engram.validation.taught import TAUGHT, Told, keep_taught, refuse, taught_tasks
from engram.validation.trials import Contender
from engram.validation.validate import trained_tasks

GATE = "gate"
"""Folder, in a learner's, of verdicts and results."""
COPIES = 10
"""Copies of weights that are kept there, the newest: another validation may still run on some."""


def contender(folder: Path) -> Contender:
    """Return the policy in ``folder`` as the gate takes it; raises InvalidInputError where there are no weights."""
    from engram.policies.checkpoint import WEIGHTS, fingerprint, sha256

    if not (folder / WEIGHTS).is_file():
        raise InvalidInputError(f"validate: there is no {WEIGHTS} in {folder}")
    return Contender(str(folder), "", sha256(folder / WEIGHTS), fingerprint(folder))


def learner_contenders(learner: Path, began: Contender, version: str = "") -> tuple[str, Contender, Contender]:
    """Return the name of ``version`` ("" = the newest candidate) of a learner, it, and what drives now.

    They are verified copies in ``learner``/gate: the learner may delete its own meanwhile.

    Args:
        learner: the learner's folder; it may be running.
        began: the policy that it began with.
        version: of its weights.

    Raises:
        StoreError: the folder cannot be read.
        InvalidInputError: there is no candidate.
        UnknownNameError, WeightsError: there is no such version, it is damaged, or it did not begin with ``began``.
    """
    library = WeightsLibrary(learner / "weights", read_only=True)
    version = version or library.newest()
    if not version or not library.current:
        raise InvalidInputError(f"validate: there is no candidate in {learner}")
    made = []
    for one in (version, library.current):
        data, manifest = library.get(one)
        try:
            _lineage(began).check(manifest.lineage, f"validate: weights {one!r}")
        except WeightsError as error:
            raise WeightsError(
                f"{error}; name the policy that the learner began with (--against of engram validate, policy of "
                "gate_node)"
            ) from None
        copy = learner / GATE / "weights" / f"{manifest.sha256}.safetensors"
        write_atomic(copy, data)
        made.append(replace(began, weights=str(copy), sha256=manifest.sha256))
    _forget_copies(*(Path(one.weights) for one in made))
    return version, made[0], made[1]


@lru_cache(maxsize=1)
def _lineage(began: Contender) -> Lineage:
    """Return the lineage that begins with this policy; a gate asks for the same one again and again."""
    from engram.policies.opening import open_policy

    return open_policy(began.checkpoint).lineage


def _forget_copies(*fresh: Path) -> None:
    """Delete the oldest copies beside ``fresh``, which were just made; what is from later is of a clock that was ahead,
    and older."""
    written = {file: file.stat().st_mtime_ns for file in fresh[0].parent.glob("*.safetensors")}
    now_ns = max(written[file] for file in fresh)
    others = sorted(written.keys() - set(fresh), key=lambda file: (written[file] <= now_ns, written[file]))
    for old in others[: max(0, len(written) - COPIES)]:
        old.unlink(missing_ok=True)


def tasks_of(*policies: Contender) -> tuple[str, ...]:
    """Return everything that could be unlearnt.

    Raises:
        InvalidInputError: no card names a task, or one names a task that does not exist.
    """
    found = dict.fromkeys(task for policy in policies for task in trained_tasks(Path(policy.checkpoint)))
    if not found:
        raise InvalidInputError("validate: neither policy's card names tasks; name them")
    return tuple(found)


def with_taught(tasks: Sequence[str], learner: Path, told: Told = refuse) -> tuple[str, ...]:
    """Return ``tasks``, and what the learner was taught since, each once; from now on no proof may leave any of it out.

    Args:
        tasks: names of tasks and suites.
        learner: the learner's folder; it may be running.
        told: is told of what it was taught that cannot be tried here; that is passed over then.

    Raises:
        StoreError: what it was taught cannot be read, or the disk refuses to keep it.
        UnknownNameError: one of ``tasks`` does not exist.
        InvalidInputError: of ``told``.
    """
    wanted = expand(tasks)
    taught = taught_tasks(learner, learner / GATE, wanted, told)
    keep_taught(learner / GATE, taught)
    return tuple(dict.fromkeys((*wanted, *(task for task in taught if _can_be_tried(task, learner, told)))))


def _can_be_tried(task: str, learner: Path, told: Told) -> bool:
    """Tell whether ``task``, which the learner was taught, is there; else ``told`` hears why not."""
    try:
        task_class(task)
    except EngramError as error:
        told(
            InvalidInputError(
                f"{learner / GATE / TAUGHT}: {task!r} was taught and cannot be tried here, so nobody can tell whether "
                f"it is unlearnt: {error}; make it importable here, or take it out of the file if it may be unlearnt"
            )
        )
        return False
    return True
