"""What a checkpoint may not do: run code of its own.

LeRobot imports the ``class`` that a processor file names and calls it, transformers runs Python files of a repository
where it is told to trust it, and our own configuration may name a memory in any module. Whoever writes a checkpoint
could so run anything on the machine that opens it. The checks here come before any of that.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lerobot.processor.pipeline import ProcessorStepRegistry

from engram.core.errors import DAMAGED, InvalidInputError, WeightsError, unknown_name
from engram.core.registry import is_spec

if TYPE_CHECKING:
    from engram.policies.source import Source

PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"


def processor_folder(source: Source) -> str:
    """Return the folder with the processors of ``source``, every file of theirs in it, to be loaded from there.

    From the hub the files are fetched once, so that what is loaded is what was checked.

    Raises:
        UnknownNameError: a step is none that LeRobot or Engram has registered; lists those.
        WeightsError: a file is missing or damaged, or a step names a class or a state that is no file beside it.
    """
    files = [source.file(PREPROCESSOR), source.file(POSTPROCESSOR)]
    for path in list(files):
        for at, step in enumerate(_steps(source, path)):
            _check_registered(path, at, step)
            if "state_file" in step:
                files.append(source.file(_state_file(path, at, step["state_file"])))
    if "lerobot.processor" in sys.modules:  # with steps that load networks of transformers
        forbid_remote_code()
    folders = {path.parent for path in files}
    if len(folders) > 1:
        raise WeightsError(f"policy {source.name!r}: changed on the hub while it was fetched; try again")
    return str(folders.pop())


def forbid_remote_code() -> None:
    """Let transformers run no Python file of a repository from now on, in the whole process.

    Some of LeRobot's networks and steps ask for that, with repositories that the checkpoint names. Some steps load
    their network at the first observation only.
    """
    from transformers import dynamic_module_utils  # slow to import

    dynamic_module_utils.get_class_in_module = _refuse  # type: ignore[assignment]


def check_memory_module(memory: Any, source: Source) -> None:
    """Check the module of a memory of the user's own that the config.json of ``source`` names; others pass.

    Raises:
        InvalidInputError: ``source`` is on the hub, or the module would be taken from the working folder.
    """
    if not (isinstance(memory, str) and is_spec(memory)):
        return
    if not Path(source.name).is_dir():
        raise InvalidInputError(
            f"policy {source.name!r}: its config.json names the memory {memory!r}; no code is imported for a policy "
            "on the hub: download it into a folder and open that"
        )
    check_importable(memory, f"policy {source.name}: memory")


def check_importable(spec: str, told: str) -> None:
    """Raise InvalidInputError unless the module of ``spec`` is imported already, installed, or on PYTHONPATH.

    The working folder alone is not enough: it may have come with the checkpoint.
    """
    module = spec.partition(":")[0]
    if module in sys.modules:
        return
    top, here = module.partition(".")[0], Path.cwd()
    try:
        found = util.find_spec(top)
    except ValueError:  # __main__ and others that were not imported from a file
        found = None
    places = [] if found is None else [*(found.submodule_search_locations or []), found.origin]
    folders = {Path(place).absolute().parent.resolve() for place in places if place}
    if found is not None and found.origin is None and (here / top).is_dir():
        folders.add(here)  # a package without __init__ takes in every folder of its name
    allowed = {Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place}
    if here in allowed or (found is not None and here not in folders):
        return
    raise InvalidInputError(
        f"{told} {spec!r}: no module {top!r} is installed or on PYTHONPATH; a checkpoint imports nothing from the "
        f"working folder {here}: set PYTHONPATH if you trust what is there"
    )


def _steps(source: Source, path: Path) -> list[dict[str, Any]]:
    told = f"policy {source.name}: its processors cannot be read: {path.name}"
    try:
        steps = json.loads(path.read_text())["steps"]
    except DAMAGED as error:
        raise WeightsError(f"{told}: {error!r}") from None
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise WeightsError(f"{told}: steps: expected a list of objects")
    return steps


def _check_registered(path: Path, at: int, step: dict[str, Any]) -> None:
    name = step.get("registry_name")
    if name not in ProcessorStepRegistry.list():
        import_module("lerobot.processor")  # registers LeRobot's other steps
    known = ProcessorStepRegistry.list()
    if not isinstance(name, str):
        raise WeightsError(
            f"{path}: step {at} names the class {step.get('class')!r}; a checkpoint may only name registered steps, "
            f"by registry_name: {', '.join(sorted(known))}"
        )
    if name not in known:
        raise unknown_name(f"registry_name of step {at} in {path}", name, known)


def _state_file(path: Path, at: int, name: Any) -> str:
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
        raise WeightsError(f"{path}: state_file of step {at}: {name!r}, expected a .safetensors file beside it")
    return name


def _refuse(name: str, module: Any, **_: Any) -> NoReturn:
    raise InvalidInputError(
        f"{name}: is Python code of the repository behind {module} (trust_remote_code); Engram runs no code that a "
        "checkpoint brings or names"
    )
