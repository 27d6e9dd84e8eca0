"""Import the parts of LeRobot that our policies are made of, and only those.

LeRobot's packages import everything that they re-export: ``lerobot.processor`` transformers and scikit-learn,
``lerobot.configs`` torchvision, ``lerobot.policies`` every policy there is. That takes several times as long as torch.
:func:`import_parts` leaves the ``__init__`` of these packages for later: it runs when somebody else first looks at the
package, as if the package were imported then. LeRobot's own commands, which import LeRobot first, notice nothing.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

DEFERRED = ("lerobot.configs", "lerobot.policies", "lerobot.processor")
"""Packages whose ``__init__`` runs later."""
PARTS = (
    "lerobot.configs.policies",
    "lerobot.optim",
    "lerobot.processor.factory",
    "lerobot.processor.normalize_processor",
    "lerobot.policies.pretrained",
)
"""What our policies import of LeRobot, with what these modules import themselves."""
_STAND_INS = {"lerobot.configs.train": "TrainPipelineConfig", "diffusers.optimization": "get_scheduler"}
"""What the parts import beside, module -> name: a class for annotations alone, with torchvision, and a function that
LeRobot's scheduler for Diffusion calls."""
_ANNOTATED = "lerobot.policies.pretrained"
"""The module with these annotations."""
_QUIET = {"__dict__", "__class__", "__name__", "__doc__", "__file__", "__loader__", "__package__"}

_lock = threading.RLock()
_importing: set[int] = set()  # the thread in import_parts
_running: set[str] = set()  # packages whose __init__ runs now, in the thread that holds the lock


def import_parts() -> None:
    """Import :data:`PARTS`; a package of :data:`DEFERRED` that has been imported stays as it is."""
    with _lock:
        if _ANNOTATED in sys.modules:
            return
        finder, stand_ins = _Finder(), [module for module in _STAND_INS if module not in sys.modules]
        for module in stand_ins:
            sys.modules[module] = _stand_in(module, _STAND_INS[module])
        sys.meta_path.insert(0, finder)
        _importing.add(threading.get_ident())
        try:
            for part in PARTS:
                import_module(part)
        finally:
            _importing.clear()
            sys.meta_path.remove(finder)
            for module in stand_ins:
                del sys.modules[module]
        if "lerobot.configs.train" in stand_ins:
            annotated: Any = sys.modules[_ANNOTATED]
            del annotated.TrainPipelineConfig
            annotated.__getattr__ = _annotation


def _stand_in(module: str, name: str) -> ModuleType:
    """Return a module with a function called ``name`` that imports ``module`` and calls the one there."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    made: Any = ModuleType(module)
    setattr(made, name, call)
    return made


def _annotation(name: str) -> Any:
    """Return the class of the annotations, imported now, for whoever asks the annotated module for it."""
    if name != "TrainPipelineConfig":
        raise AttributeError(f"module {_ANNOTATED!r} has no attribute {name!r}")
    return getattr(import_module("lerobot.configs.train"), name)


class _Package(ModuleType):
    """A package whose ``__init__`` has not run.

    For the thread in :func:`import_parts` it has the names that its ``__init__`` would import from submodules. When
    somebody else looks at it, its ``__init__`` runs, and it becomes an ordinary module.
    """

    def __getattribute__(self, name: str) -> Any:
        if name in _QUIET:
            return ModuleType.__getattribute__(self, name)
        looked_up = name in ("__spec__", "__path__", "__all__")  # by an import, or by "import *"
        there, ours = name in self.__dict__, threading.get_ident() in _importing
        if (there and not looked_up) or (ours and looked_up):
            return ModuleType.__getattribute__(self, name)
        if ours and name in (modules := _reexports(self.__file__)):
            return getattr(import_module(f"{self.__name__}.{modules[name]}"), name)
        if looked_up or not name.startswith("__"):
            _complete(self)
        return ModuleType.__getattribute__(self, name)


def _complete(package: _Package) -> None:
    """Run the ``__init__`` of ``package``, unless this thread is at it."""
    with _lock:
        name = package.__name__
        if type(package) is not _Package or name in _running:
            return
        later = package.__loader__
        assert isinstance(later, _Later)
        _running.add(name)
        try:
            later.loader.exec_module(package)
            vars(package)["__spec__"].loader = package.__loader__ = later.loader
            package.__class__ = ModuleType  # type: ignore[assignment]
        finally:
            _running.discard(name)


def _reexports(path: str | None) -> dict[str, str]:
    """Return, for the ``__init__`` at ``path``, each name that it imports from a submodule -> that submodule."""
    tree = ast.parse(Path(str(path)).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


class _Finder(MetaPathFinder):
    """Finds the packages of :data:`DEFERRED`, for the thread in :func:`import_parts`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in DEFERRED or threading.get_ident() not in _importing:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(Loader):
    """Makes a package without running its ``__init__``; ``loader`` can run it."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it for later."""
