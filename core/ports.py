"""Who listens on a TCP port: a port in use must be an error that a person can act on."""

from __future__ import annotations

import socket

import psutil

from engram.core.errors import EngramError, InvalidInputError


class PortInUseError(EngramError):
    """A TCP port that we want to listen on belongs to somebody else."""


def port_owner(port: int) -> str:
    """Return ``name (pid n)`` of the process that listens on ``port``, or what is known; empty when it is free."""
    if not 1 <= port <= 65535:
        raise InvalidInputError(f"port {port}: expected 1..65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            return ""
        except OSError as error:
            reason = str(error)
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    break
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        pass
    return f"a process of another user or container ({reason})"


def require_free_port(port: int, how_to_change: str) -> None:
    """Raise PortInUseError naming ``port``, its owner and ``how_to_change`` it."""
    if owner := port_owner(port):
        raise PortInUseError(f"port {port} is in use by {owner}; choose another with {how_to_change}, or end it")


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
