"""Parameters of the link node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import NodeConfig, param


@dataclass(frozen=True)
class LinkNodeConfig(NodeConfig):
    """Parameters of the link node."""

    niceness: int = param(5, 0, 19)
    """No command waits for it, so on a busy machine it stands back."""
    compress: bool = True
    """Republish the cameras' images compressed; false: only watch the link."""
    quality: int = param(80, 1, 95)
    """Quality of the JPEG images."""
    rate_hz: float = param(10.0, 0.1, 1000.0)
    """Most images per camera and second of the images' own time [Hz]."""
    peers: tuple[str, ...] = ("",)
    """Names of the nodes on the other machine that are listened for; [""]: none."""
    lost_after_s: float = param(3.0, 1.5, 600.0)
    """The link is lost when a peer was not heard of for this long [s]; nodes report once a second."""
