"""Commands for running nodes, for those without ROS's own tools: ``engram do``, ``engram stop``, …"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from engram.app.goal_line import GoalLine
from engram.app.options import check_asking
from engram.app.up import child_environment
from engram.core.errors import InvalidInputError
from engram.runtime.asking import STOPPED
from engram.runtime.episode_report import LoopError
from engram.runtime.goal_words import outcome_words

if TYPE_CHECKING:
    from engram.nodes.learner_client import LearnerClient
    from engram.nodes.loop_client import LoopClient

NOT_STOPPED = "nothing was stopped, as far as is known. Use the emergency stop"
CONFIRM_S = 1.0
"""How long after an answer the safety node may take to tell of the stop; then it is asked for the stop again [s]."""


@dataclass(frozen=True)
class StopConfig:
    """Which robot is meant."""

    domain: int | None = None
    """DDS domain of its nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 10.0
    """Longest wait for the node's answer [s]."""


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
class PromoteConfig:
    """Which weights shall drive, and which learner is meant."""

    version: tyro.conf.Positional[str] = ""
    """As the page and policy/candidate name it; default: the newest candidate."""
    reason: str = ""
    """Why, for the log of promotions."""
    domain: int | None = None
    """DDS domain of its nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 30.0
    """Longest wait for the learner's answer [s]."""


@dataclass(frozen=True)
class RollbackConfig:
    """Which weights shall drive again, and which learner is meant."""

    version: tyro.conf.Positional[str] = ""
    """One that drove earlier; default: the one before."""
    reason: str = ""
    """Why, for the log of promotions."""
    domain: int | None = None
    """DDS domain of its nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 30.0
    """Longest wait for the learner's answer [s]."""


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
    """Longest wait for the outcome [s]; then, as at Ctrl-C, the goal is cancelled."""


def stop(config: StopConfig) -> int:
    """Hold the robot until it is released; 0 only if its safety node says that it is stopped.

    Whatever goes wrong, it is told that the robot may be moving.

    Raises:
        LoopError: no safety node answered, or it could not be asked.
        InvalidInputError: nobody can be asked so.
    """
    try:
        success, said = _latch(config, stopped=True)
    except KeyboardInterrupt:
        print(f"engram stop: {NOT_STOPPED}", file=sys.stderr)
        raise
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}: {NOT_STOPPED}") from None
    except LoopError as error:
        raise LoopError(f"{error}: {NOT_STOPPED}") from None
    except Exception as error:
        raise LoopError(f"{error!r}: {NOT_STOPPED}") from error
    print(said if success else f"{said}: {NOT_STOPPED}")
    return int(not success)


def release(config: StopConfig) -> int:
    """Release a stopped robot; 0 only if its safety node says that it is not stopped."""
    success, said = _latch(config, stopped=False)
    print(said)
    return int(not success)


def judge(config: JudgeConfig) -> int:
    """Tell the robot how its goal ended; 0 only if a goal ended so."""
    return _trigger(config, f"execute_task/{config.outcome}")


def cancel(config: StopConfig) -> int:
    """Cancel the robot's goal, whoever gave it; 0 only if there was one. The arm stays where it is."""
    return _trigger(config, "execute_task/cancel")


def promote(config: PromoteConfig) -> int:
    """Let learnt weights drive; 0 only if the learner took them: behind the gate, only with its verdict."""
    with _learner(config) as client:
        accepted, said = client.promote(config.version, config.reason or "engram promote", config.timeout_s)
    print(said)
    return int(not accepted)


def rollback(config: RollbackConfig) -> int:
    """Go back to weights that drove earlier; 0 only if the learner did."""
    with _learner(config) as client:
        accepted, said = client.roll_back(config.version, config.reason or "engram rollback", config.timeout_s)
    print(said)
    return int(not accepted)


def do(config: DoConfig) -> int:
    """Give the robot an instruction, show how it goes and print the outcome; 0 only if it succeeded."""
    line = GoalLine(sys.stderr)
    with _client(config) as client:
        client.idle = line.tick
        try:
            result = client.do(config.instruction, config.timeout_s, line.take)
        finally:
            line.end()
    print(outcome_words(result.outcome, result.reason, result.steps, result.duration_s))
    return int(result.outcome != "succeeded")


def _trigger(config: StopConfig | JudgeConfig, service: str) -> int:
    success, said = _answer(config, service)
    print(said)
    return int(not success)


def _latch(config: StopConfig, *, stopped: bool) -> tuple[bool, str]:
    """Ask for a stop or for its release; return whether the safety node itself says that it is so, and what was said.

    Whoever offers the service may answer: only what the safety node tells of its latch confirms it. A stop is asked for
    again meanwhile, as somebody else may have got it. A release is not: it could release what was stopped since.
    """
    service, told = "safety/stop" if stopped else "safety/reset", list[bool]()
    end = time.monotonic() + config.timeout_s
    with _client(config) as client:
        health = client.hear_stopped(told.append)
        said = client.trigger(service, config.timeout_s)[1]
        while told[-1:] != [stopped] and (left_s := end - time.monotonic()) > 0.0:
            with suppress(LoopError):
                client.wait_for(lambda: told[-1:] == [stopped], min(CONFIRM_S, left_s), STOPPED)
            if stopped and told[-1:] != [stopped]:
                with suppress(LoopError):
                    said = client.trigger(service, min(CONFIRM_S, left_s))[1]
    if told[-1:] == [stopped]:
        return True, said
    heard = f"says that {'a' if told[-1] else 'no'} stop is latched" if told else "was not heard"
    others = f" ({health.last_problem})" if health.last_problem else ""
    return False, f"{service} answered {said!r}, but {STOPPED} of safety_node {heard}{others}"


def _answer(config: StopConfig | JudgeConfig, service: str) -> tuple[bool, str]:
    with _client(config) as client:
        return client.trigger(service, config.timeout_s)


@contextmanager
def _client(config: StopConfig | JudgeConfig | DoConfig) -> Iterator[LoopClient]:
    check_asking(config)
    os.environ.update(child_environment(config.domain, None))  # before ROS is imported: it reads them once
    from engram.nodes.loop_client import LoopClient

    with closing(LoopClient(config.namespace, config.domain)) as client:
        yield client


@contextmanager
def _learner(config: PromoteConfig | RollbackConfig) -> Iterator[LearnerClient]:
    check_asking(config)
    os.environ.update(child_environment(config.domain, None))
    from engram.nodes.learner_client import LearnerClient

    with closing(LearnerClient(config.namespace, config.domain)) as client:
        yield client
