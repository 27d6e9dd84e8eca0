"""Names of a package that are imported when they are first used (PEP 562), so that importing the package is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of ``package``, which offers each name of ``modules`` from its module.

    >>> get, names = lazy("example", {"sqrt": "math"})
    >>> get("sqrt")(9.0), names()
    (3.0, ['sqrt'])
    """

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {', '.join(sorted(modules))}")

    return get, lambda: sorted(modules)
