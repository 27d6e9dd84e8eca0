"""Trials on many machines: a pool whose processes are Ray's (https://docs.ray.io).

Every machine needs Engram of the same code and the same simulator; one that has others refuses to run a trial. The
policies travel: nothing has to be copied there beforehand.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError, InvalidInputError
from engram.validation.trials import IDLE, Contender, environment_digest

LOCAL = "local"
"""Address of a Ray that is started here, with as many workers as there are to be."""
STORE_BYTES = 200_000_000
"""Memory of a Ray that is started here, for what travels: policies of some megabytes."""
DRIVES = "drives/model.safetensors"
"""Where weights lie that replace the folder's own: beside its files, which say how the policy acts."""
CONNECT_S = 10.0
"""Longest wait for somebody who listens [s]."""
Files = dict[str, bytes]


@contextmanager
def ray_pool(address: str, workers: int = 1) -> Iterator[Executor]:
    """Yield a pool that runs trials on the Ray cluster at ``address``; Ray's processes yield to others by themselves.

    Args:
        address: as ``ray.init`` takes it (``auto``, ``10.0.0.1:6379``, ``ray://10.0.0.1:10001``), or ``local``.
        workers: processes, where ``address`` is ``local``; a cluster has its own.

    Raises:
        InvalidInputError: Ray is not installed.
        EngramError: nobody answers at ``address``, a machine has other code, or trials were lost again and again.
    """
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError as error:
        raise InvalidInputError(f"ray {address!r}: Ray is not installed here: pip install ray ({error})") from None
    settings: dict[str, Any] = {}
    if address == LOCAL:
        settings = {"num_cpus": workers, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    try:
        _reach(address)
        ray.init(address, log_to_driver=False, configure_logging=False, **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EngramError(f"ray {address!r}: no cluster answers there: {error}") from error
    try:
        yield _RayExecutor()
    except RayTaskError as error:
        raise EngramError(f"ray {address!r}: {error.cause}") from error
    except RayError as error:
        raise EngramError(f"ray {address!r}: {error}") from error
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise OSError where nobody listens at ``address``: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), CONNECT_S).close()


class _RayExecutor(Executor):
    """Runs functions whose first argument is a contender; what was lost with a process is run again by Ray."""

    def __init__(self) -> None:
        import ray

        self._ray, self.environment = ray, environment_digest()
        self._run = ray.remote(num_cpus=1, max_retries=3)(_run)
        self._packed: dict[str, Any] = {}  # by the contender's key

    def submit(self, function: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """Run ``function`` of a contender and ``args`` on some machine."""
        who, *rest = args
        if who.key not in self._packed:
            self._packed[who.key] = self._ray.put(_pack(who))
        done = self._run.remote(self.environment, self._packed[who.key], function, who, *rest, **more)
        answer: Future[Any] = done.future()
        return answer


def _pack(who: Contender) -> Files:
    """Return the files of a policy: its folder, and its weights where those lie elsewhere."""
    if who.checkpoint == IDLE:
        return {}
    folder = Path(who.checkpoint)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return files | ({DRIVES: Path(who.weights).read_bytes()} if who.weights else {})


def _run(environment: str, files: Files, function: Callable[..., Any], who: Contender, *rest: Any, **more: Any) -> Any:
    """Do it on this machine, in one of Ray's processes."""
    if environment_digest() != environment:
        raise EngramError(f"{socket.gethostname()} has other code, MuJoCo or assets: install the same Engram there")
    if files:
        folder = _unpacked(who.key, files)
        weights = str(folder / DRIVES) if who.weights else ""
        who = replace(who, checkpoint=str(folder), weights=weights)
    return function(who, *rest, **more)


_KEPT: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Unpacked policies of this process, by their keys."""


def _unpacked(key: str, files: Files) -> Path:
    """Return a folder with ``files``, written once a process."""
    if key not in _KEPT:
        _KEPT[key] = tempfile.TemporaryDirectory(prefix="engram-ray-")
        for name, data in files.items():
            path = Path(_KEPT[key].name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return Path(_KEPT[key].name)
