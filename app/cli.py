"""The ``engram`` command. Each subcommand's module is imported only when it is asked for: ``--help`` stays instant."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO, get_type_hints

from engram.core.errors import EngramError, InvalidInputError, unknown_name
from engram.core.notices import hush_datasets
from engram.runtime.episode_report import LoopError


@dataclass(frozen=True)
class Command:
    """One subcommand: ``function`` of ``module`` takes one config dataclass, which becomes its flags."""

    module: str
    function: str
    summary: str
    config: str = ""
    """Where the config is, as module:class; empty: the annotation of the function's argument."""


COMMANDS: dict[str, Command] = {
    "demo": Command("engram.app.demo", "demo", "run the whole loop in simulation and watch it in the browser"),
    "up": Command("engram.app.up", "up", "start the nodes of a launch file and watch over them"),
    "do": Command("engram.app.operate", "do", "give the robot an instruction and wait for the outcome"),
    "cancel": Command(
        "engram.app.operate", "cancel", "end the goal that the robot carries out; the arm stays where it is"
    ),
    "judge": Command("engram.app.operate", "judge", "say that a robot's goal succeeded or failed"),
    "classifier": Command(
        "engram.app.classifier", "classifier", "learn from judged goals to judge those that the memory cannot"
    ),
    "promote": Command("engram.app.operate", "promote", "let weights that the learner made drive"),
    "rollback": Command("engram.app.operate", "rollback", "go back to weights that drove earlier"),
    "weights": Command("engram.app.weights", "weights", "what a learner made, where it comes from, what became of it"),
    "stop": Command("engram.app.operate", "stop", "hold the robot until it is released (no emergency stop)"),
    "release": Command("engram.app.operate", "release", "release a stopped robot"),
    "teleop": Command("engram.app.teleop", "teleop", "take over the robot: by keyboard, gamepad or leader arm"),
    "record": Command(
        *("engram.app.commands", "record", "record demonstrations of the scripted experts as a LeRobotDataset"),
        config="engram.runtime.record:RecordConfig",
    ),
    "merge": Command(
        *("engram.app.commands", "merge", "make one dataset of several recordings"),
        config="engram.runtime.datasets:MergeConfig",
    ),
    "dataset": Command(
        *("engram.app.commands", "dataset", "make a LeRobotDataset of what a robot or a practice did"),
        config="engram.runtime.experience_dataset:DatasetConfig",
    ),
    "train": Command(
        *("engram.app.commands", "train", "train the policy on a LeRobotDataset by behaviour cloning"),
        config="engram.policies.training.train_config:TrainConfig",
    ),
    "relight": Command(
        *("engram.app.commands", "relight", "teach a policy to see in other light what it sees in a dataset"),
        config="engram.policies.training.relight_config:RelightConfig",
    ),
    "memory": Command(
        *("engram.app.memory_command", "memory", "ask a robot's memory, look into its past, export, merge, repair"),
        config="engram.app.memory_command:MemoryConfig",
    ),
    "policy": Command("engram.app.policy_command", "policy", "list the shipped policies, or print a policy's folder"),
    "keys": Command("engram.app.keys_command", "keys", "keys that say whose weights a robot takes: new, show, trust"),
    "eval": Command("engram.app.commands", "evaluate", "success rates of a policy in simulation, with intervals"),
    "improve": Command("engram.app.improve", "improve", "let a policy practise a task and measure how it gets better"),
    "plot": Command("engram.app.plot", "plot", "draw how a robot's goals went while it learnt, also for TensorBoard"),
    "identify": Command("engram.app.identify", "identify", "how a robot differs from the simulation, by its record"),
    "validate": Command("engram.app.validate", "validate", "try a candidate out in simulation: may it drive?"),
    "bench": Command("engram.app.commands", "bench", "benchmarks: ours, peer, limit, ratio"),
    "prove": Command("engram.app.prove", "prove", "figures of one part, measured again from their seeds"),
    "doctor": Command("engram.app.doctor", "doctor", "check this machine and say what to do"),
}


def usage() -> str:
    """Return the text of ``engram --help``."""
    width = max(len(name) for name in COMMANDS)
    rows = "\n".join(f"  {name.ljust(width)}  {command.summary}" for name, command in COMMANDS.items())
    return f"usage: engram <command> [options]\n\n{rows}\n\n'engram <command> --help' lists the options of one command."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code.

    0 done; 1 it was tried and failed, or nobody answered; 2 it cannot be done as it was asked for; 130 Ctrl-C.

    141, as a shell tells of SIGPIPE, when whoever reads its output (``engram ... | head``) has read enough.
    """
    if sys.stdout is None:  # `engram ... >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 for as long as this process lives
    try:
        return _written(_command(list(sys.argv[1:] if argv is None else argv)))
    except SystemExit as ended:  # of `engram <command> --help`
        raise SystemExit(_written(ended.code)) from None
    except BrokenPipeError:
        if not _unread(sys.stdout):
            raise
        return _give_up()


def _written[Code](code: Code) -> Code | int:
    """Write out what was printed and return the exit ``code``, or 141 if all went well but nobody reads it."""
    try:
        sys.stdout.flush()  # while its reader's end can still be told from ours
    except BrokenPipeError:
        unread = _give_up()
        return code or unread
    return code


def _give_up() -> int:
    """Let what was not read go nowhere when the interpreter ends; return the exit code of that."""
    with open(os.devnull, "w") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and _unread(stream):
                os.dup2(nowhere.fileno(), stream.fileno())
    return 141


def _unread(stream: TextIO) -> bool:
    """Whether ``stream`` is a pipe whose reader has left."""
    try:
        poll = select.poll()
        poll.register(stream, 0)  # errors are told unasked
    except (OSError, ValueError):
        return False  # of no file
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _command(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        from engram import __version__

        print(f"engram {__version__}")
        return 0
    name = words[0]
    hush_datasets()
    try:
        if name not in COMMANDS:
            raise unknown_name("command", name, COMMANDS)
        return _run(name, words[1:])
    except EngramError as error:
        print(f"engram: {error}" if name not in COMMANDS else f"engram {name}: {error}", file=sys.stderr)
        return 1 if isinstance(error, LoopError) else 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, a folder that may not be written: nothing of ours is wrong
        reason = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error
        print(f"engram {name}: {reason}", file=sys.stderr)
        return 1


def config_type(command: Command) -> Any:
    """Return the dataclass whose fields are the flags of ``command``."""
    if command.config:
        module, _, attribute = command.config.partition(":")
        return getattr(import_module(module), attribute)
    function = getattr(import_module(command.module), command.function)
    hints = get_type_hints(function, include_extras=True)
    return next(hint for key, hint in hints.items() if key != "return")


def _run(name: str, words: list[str]) -> int:
    import tyro

    from engram.app.options import with_home

    command = COMMANDS[name]
    function = getattr(import_module(command.module), command.function)
    asked, flags = config_type(command), (tyro.conf.FlagCreatePairsOff,)
    config = with_home(tyro.cli(asked, args=words, prog=f"engram {name}", config=flags))
    try:
        return int(function(config) or 0)
    except InvalidInputError as error:
        raise InvalidInputError(in_options(str(error), asked)) from error


def in_options(text: str, asked: type) -> str:
    """Return an error's ``text`` in the words of the command line: ``MergeConfig.root`` is ``--root``."""

    def option(found: re.Match[str]) -> str:
        return "--" + found[1].replace("_", "-")

    return re.sub(rf"\b{asked.__name__}\.(\w+)", option, text)


if __name__ == "__main__":
    sys.exit(main())
