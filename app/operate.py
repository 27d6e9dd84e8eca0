"""Commands for running nodes, for those without ROS's own tools: ``engram stop``, ``engram release``, ``engram do``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from engram.app.up import child_environment

if TYPE_CHECKING:
    from engram.nodes.loop_client import LoopClient


@dataclass(frozen=True)
class StopConfig:
    """Which robot is meant."""

    domain: int | None = None
    """DDS domain of its nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 10.0
    """Longest wait for the safety node's answer [s]."""


@dataclass(frozen=True)
class JudgeConfig:
    """How the robot's goal ended, and which robot is meant. What succeeded is what the learner imitates."""

    outcome: tyro.conf.Positional[Literal["succeeded", "failed"]]
    """succeeded or failed."""
    domain: int | None = None
    """DDS domain of its nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 10.0
    """Longest wait for the policy node's answer [s]."""


@dataclass(frozen=True)
class DoConfig:
    """What to do, and which robot is meant."""

    instruction: tyro.conf.Positional[str]
    """What to do, such as "put the red cube in the bin"."""
    domain: int | None = None
    """DDS domain of its nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 120.0
    """Longest wait for the outcome [s]."""


def stop(config: StopConfig) -> int:
    """Hold the robot until it is released; 0 only if its safety node confirmed it."""
    return _trigger(config, "safety/stop")


def release(config: StopConfig) -> int:
    """Release a stopped robot; 0 only if its safety node confirmed it."""
    return _trigger(config, "safety/reset")


def judge(config: JudgeConfig) -> int:
    """Tell the robot how its goal ended; 0 only if a goal ended so."""
    return _trigger(StopConfig(config.domain, config.namespace, config.timeout_s), f"execute_task/{config.outcome}")


def do(config: DoConfig) -> int:
    """Give the robot an instruction and print the outcome; 0 only if it succeeded."""
    with _client(config.namespace, config.domain) as client:
        result = client.do(config.instruction, config.timeout_s)
    print(": ".join(filter(None, (result.outcome, result.reason))))
    return int(result.outcome != "succeeded")


def _trigger(config: StopConfig, service: str) -> int:
    with _client(config.namespace, config.domain) as client:
        success, said = client.trigger(service, config.timeout_s)
    print(said)
    return int(not success)


@contextmanager
def _client(namespace: str, domain: int | None) -> Iterator[LoopClient]:
    os.environ.update(child_environment(domain, None))  # before ROS is imported: it reads them once
    from engram.nodes.loop_client import LoopClient

    client = LoopClient(namespace, domain)
    try:
        yield client
    finally:
        client.close()
