"""``engram weights``: every version of the weights that a learner made, where it comes from, and what became of it.

It also makes a checkpoint of a version. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from engram.app.options import refuse
from engram.core.errors import DAMAGED, InvalidInputError, WeightsError
from engram.core.provenance import commit
from engram.core.types import Lineage, PolicyManifest
from engram.learning.weights.keys import keys_folder
from engram.learning.weights.library import UNREADABLE, WeightsLibrary

KEPT = ("policy", "tasks", "instructions", "parameters")
"""What stays on the card of a checkpoint that gets other weights; its figures are of those that it had."""

OTHERS = 40
"""What the other columns of the list need: with less beside the versions' names, these are broken, too [characters]."""


@dataclass(frozen=True)
class WeightsConfig:
    """The versions of a learner's weights. The learner may be running; nothing is changed."""

    learner: tyro.conf.Positional[Path | None] = None
    """Folder of the learner (its parameter folder); default: learner in the robot's data folder."""
    robot: str = "robot0"
    """robot_id of the robot whose data folder is meant: its namespace with _ for /, robot0 without one."""
    export: str = ""
    """Version to make a checkpoint of, which engram eval and the nodes take, in place of the list."""
    output: Path | None = None
    """New folder for that checkpoint."""
    policy: str = "base"
    """Checkpoint that the learner began with (policy of the launch): a shipped name or a folder."""


def weights(config: WeightsConfig) -> int:
    """List the versions, or export one; the last line is what is known of them as JSON."""
    learner = (config.learner or keys_folder(config.robot).with_name("learner")).expanduser()
    library = WeightsLibrary(learner / "weights", read_only=True)
    if not library.versions:
        raise InvalidInputError(f"WeightsConfig.learner: {learner} holds no weights of a learner")
    if config.export:
        return _export(config, library, learner)
    refuse(config, ("output", "policy"), " without --export")
    rows, current = [], library.current
    table, console = Table(title=f"Weights in {learner}"), Console(stderr=True)
    whole = console.width >= max(map(len, library.versions)) + OTHERS
    for name in ("version", "stage", "trained from", "successes", "updates", "why"):
        table.add_column(name, overflow="fold", no_wrap=whole and name == "version")
    for version in library.versions:
        try:
            manifest = library.manifest(version)
        except WeightsError as error:
            table.add_row(version, UNREADABLE, "", "", "", str(error))
            rows.append({"version": version, "stage": UNREADABLE, "drives": version == current, "error": str(error)})
            continue
        metrics = manifest.metrics
        because = str(metrics.get("because", metrics.get("approved_because", "")))
        counts = [str(metrics.get(name, "")) for name in ("successes", "updates")]
        table.add_row(version, manifest.stage, manifest.parent, *counts, because)
        rows.append(asdict(manifest) | {"drives": version == current})
    console.print(table)
    console.print(f"Drives: {current or '(none)'}")
    print(json.dumps({"learner": str(learner), "deployed": library.deployed, "versions": rows}))
    return 0


def _export(config: WeightsConfig, library: WeightsLibrary, learner: Path) -> int:
    """Make a checkpoint of the version ``config.export``; the last line says as JSON where it comes from.

    Raises:
        InvalidInputError: there is no new folder to write to.
        UnknownNameError: there is no such version or checkpoint.
        WeightsError: the weights are damaged, or of another lineage than the checkpoint.
        StoreError: what the learner was taught cannot be read.
    """
    from engram.policies.opening import files_of, open_policy  # torch: only for those who export
    from engram.validation.of_learner import GATE
    from engram.validation.taught import taught_tasks

    if config.output is None or (output := config.output.expanduser()).exists():
        raise InvalidInputError(f"WeightsConfig.output: {config.output}, expected a new folder for the checkpoint")
    data, manifest = library.get(config.export)
    lineage = replace(open_policy(config.policy).lineage, name=config.policy)
    lineage.check(manifest.lineage, f"weights {manifest.version!r} for policy {config.policy}")
    learnt = _origin(manifest, lineage, learner)
    practised = taught_tasks(learner, learner / GATE) if manifest.parent else ()  # before the first, nothing was
    write_checkpoint(files_of(config.policy), data, learnt, output, practised)
    Console(stderr=True).print(f"written: {output}")
    print(json.dumps({"exported": str(output)} | learnt))
    return 0


def _origin(manifest: PolicyManifest, lineage: Lineage, learner: Path) -> dict[str, object]:
    """Return where the weights of ``manifest`` come from, ready for JSON."""
    return {
        "version": manifest.version,
        "lineage": asdict(lineage),
        "learner": str(learner.resolve()),
        "sha256": manifest.sha256,
        "stage": manifest.stage,
        "commit": commit(),
    }


def write_checkpoint(
    began: Path, data: bytes, learnt: dict[str, object], output: Path, practised: Sequence[str]
) -> None:
    """Write the checkpoint in the folder ``began`` with the weights ``data`` to ``output``, in one move.

    Args:
        began: of the policy that learning began with.
        data: weights, in safetensors format. A motion edit is put behind the weights that are there, which it names.
        learnt: where they come from; goes into the card, beside the ``sha256`` of the weights.
        output: folder; one that is there already is replaced.
        practised: tasks that it was taught since; they go into the card, so that the gate guards them, too.

    Raises:
        InvalidInputError: it cannot be written, or the card cannot be read.
        WeightsError: ``data`` is an edit of other weights.
    """
    from engram.policies.checkpoint import CARD, WEIGHTS, sha256
    from engram.policies.motion_edits import is_edit, write_edit

    fresh = output.with_name(f"{output.name}.{os.getpid()}.partial")
    try:
        left_out = shutil.ignore_patterns(CARD, *(() if is_edit(data) else (WEIGHTS,)))
        shutil.copytree(began, fresh, ignore=left_out, copy_function=shutil.copyfile)
        if is_edit(data):
            write_edit(data, fresh)
        else:
            (fresh / WEIGHTS).write_bytes(data)
        told = dict(json.loads((began / CARD).read_text())) if (began / CARD).exists() else {}
        card = {name: told[name] for name in KEPT if name in told}
        if tasks := [*dict.fromkeys((*card.get("tasks", ()), *practised))]:
            card["tasks"] = tasks
        card |= {"sha256": sha256(fresh / WEIGHTS), "learnt": learnt}
        (fresh / CARD).write_text(json.dumps(card, indent=1) + "\n")
        before = fresh.with_suffix(".before")
        if output.exists():
            output.rename(before)
        fresh.rename(output)
        shutil.rmtree(before, ignore_errors=True)
    except DAMAGED as error:
        raise InvalidInputError(f"{output}: no checkpoint can be written of {began}: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
