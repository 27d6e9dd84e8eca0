"""Import the parts of LeRobot that our policies are made of, and only those.

LeRobot's packages import everything that they re-export: ``lerobot.processor`` transformers and scikit-learn,
``lerobot.configs`` torchvision, ``lerobot.policies`` every policy there is. That takes several times as long as torch.
:func:`import_parts` imports modules out of these packages without the packages themselves. Whoever imports one of the
packages later gets it as always, with the modules that are there already. LeRobot's own commands, which import LeRobot
first, notice nothing.
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

PACKAGES = ("lerobot.configs", "lerobot.policies", "lerobot.processor")
"""Packages that are left out."""
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

_one_at_a_time = threading.Lock()


def import_parts() -> None:
    """Import :data:`PARTS`, unless LeRobot's policies have been imported."""
    with _one_at_a_time:
        if _ANNOTATED in sys.modules:
            return
        finder, stand_ins = _Finder(), [module for module in _STAND_INS if module not in sys.modules]
        for module in stand_ins:
            sys.modules[module] = _stand_in(module, _STAND_INS[module])
        sys.meta_path.insert(0, finder)
        try:
            for part in PARTS:
                import_module(part)
        finally:
            finder.hollow = False
            for module in (*stand_ins, *PACKAGES):
                if module in stand_ins or isinstance(sys.modules.get(module), _Hollow):
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


class _Hollow(ModuleType):
    """A package whose ``__init__`` is not run.

    While the parts are imported, it has the names that its ``__init__`` would import from submodules. Later it is no
    longer in ``sys.modules``, and hands on those of the package that is imported then.
    """

    def __getattr__(self, name: str) -> Any:
        package = self.__name__
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if sys.modules.get(package) is not self:
            return getattr(import_module(package), name)
        modules = _reexports(Path(str(self.__file__)))
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r} while its parts are imported")
        return getattr(import_module(f"{package}.{modules[name]}"), name)


def _reexports(path: Path) -> dict[str, str]:
    """Return, for the ``__init__`` at ``path``, each name that it imports from a submodule -> that submodule."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


class _Finder(MetaPathFinder):
    """Finds :data:`PACKAGES`: hollow at first, then whole."""

    hollow = True

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _HollowLoader() if self.hollow else _WholeLoader(spec.loader)
        return spec


class _HollowLoader(Loader):
    """Makes a package without running its ``__init__``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it out."""


class _WholeLoader(Loader):
    """Runs the ``__init__`` of a package some of whose submodules have been imported before it."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary one

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        within = f"{module.__name__}."
        for name, submodule in list(sys.modules.items()):
            if name.startswith(within) and "." not in name.removeprefix(within):
                setattr(module, name.removeprefix(within), submodule)  # an import of it would have done so
        self.loader.exec_module(module)
