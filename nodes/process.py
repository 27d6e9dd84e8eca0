"""How one node runs as a process: start, spin, and an end in order whatever signals come when."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

import rclpy
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn

from engram.core.errors import EXIT_MISCONFIGURED, EngramError
from engram.nodes.base import EngramNode
from engram.nodes.executor import KeptExecutor
from engram.runtime import own_process
from engram.runtime.process_mark import ProcessMark

DESTROY_S = 5
"""How long DDS may take to destroy what a node had [s]; then the process ends all the same."""


def run(node_class: Callable[[], EngramNode], args: list[str] | None = None, *, ahead: Iterable[str] = ()) -> NoReturn:
    """Run one node until SIGINT or SIGTERM, then end the process.

    Modules ``ahead``, which take seconds, are imported while DDS discovers the other processes in threads of its own.
    """
    faulthandler.enable()  # a crash in C++ code says where Python was
    status = 0
    with suppress(KeyboardInterrupt):  # it may reach Python after the node was left in order
        status = _run(node_class, args, ahead)
    # Everything is closed and durable. Taking torch and Open3D apart would cost up to half a minute on a busy
    # machine, and a launcher that waits less would kill the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(node_class: Callable[[], EngramNode], args: list[str] | None, ahead: Iterable[str]) -> int:
    status = 0
    node: EngramNode | None = None
    executor: SingleThreadedExecutor | None = None
    mark: ProcessMark | None = None
    signal.signal(signal.SIGINT, own_process.interrupt_once)  # rclpy's own handler calls it
    own_process.wake_in_time()
    try:
        rclpy.init(args=args)
        node = node_class()
        own_process.import_ahead(ahead)
        own_process.share_processor(node.config.niceness)
        mark = ProcessMark(node.get_fully_qualified_name(), node.context.get_domain_id())
        executor = _executor_for(node)
        executor.add_node(node)
        if not node.config.autostart or _autostart(node):
            _spin(node, executor)
        elif node.unfit is None:
            status = 1 if rclpy.ok() else 0  # a signal during the start is no failure
        if node.unfit is not None:
            raise node.unfit
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except EngramError as error:
        print(f"error: {error}", file=sys.stderr)
        status = EXIT_MISCONFIGURED
    except Exception:
        # A signal may end the context while the node is being made, or surface as an error of the C++ code that Python
        # was called from: pybind11 turns a KeyboardInterrupt while it converts a message into a RuntimeError.
        if rclpy.ok() and not own_process.interrupted():
            traceback.print_exc()
            status = 1
    finally:
        with suppress(KeyboardInterrupt):  # the signal that ended the context may reach Python only now
            own_process.ignore_signals()
        own_process.ignore_signals()
        with own_process.leaving():
            _leave(node, executor, status)
        if mark is not None:
            mark.release()
    return status


def _executor_for(node: EngramNode) -> SingleThreadedExecutor:
    """Return the executor that the parameter ``executor`` names."""
    return SingleThreadedExecutor() if node.config.executor == "rclpy" else KeptExecutor(on_error=node.report)


def _spin(node: EngramNode, executor: SingleThreadedExecutor) -> None:
    """Call what is ready until the context ends or the node turns out unfit; no callback ends it."""
    with own_process.finishing_callbacks():
        while rclpy.ok() and node.unfit is None and not own_process.interrupted():
            try:
                executor.spin_once()
            except (ExternalShutdownException, ShutdownException):
                return
            except Exception as error:  # rclpy's own executor raises what a callback raised
                if rclpy.ok():  # else the callback was publishing while the context was ended
                    node.report("callback", error)


def _autostart(node: EngramNode) -> bool:
    success = TransitionCallbackReturn.SUCCESS
    return node.trigger_configure() == success and node.trigger_activate() == success


def _leave(node: EngramNode | None, executor: SingleThreadedExecutor | None, status: int) -> None:
    if node is not None:
        try:
            node.close()
        except Exception as error:
            print(f"{node.get_name()}: {type(error).__name__} while closing: {error}", file=sys.stderr)
    with own_process.ending_within(DESTROY_S, status):
        if executor is not None:
            executor.shutdown()  # it holds on to what it waits for: without this, nothing below is really destroyed
        if node is not None:
            try:
                node.destroy_node()
            except Exception as error:  # the context is gone already: nothing is left to destroy
                print(f"{node.get_name()}: {type(error).__name__} while leaving: {error}", file=sys.stderr)
        rclpy.try_shutdown()
    own_process.ignore_signals()  # rclpy has just put back the handlers that it found
