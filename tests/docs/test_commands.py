"""Every command in the documentation exists, with the flags that it is shown with. None of them is run."""

import functools
import importlib
import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from engram.app import cli
from engram.app.launch_graph import find_launch_file, load_graph, parse_assignments
from tests.docs.pages import PAGES, REPOSITORY, name, shell_lines

LAUNCH = REPOSITORY / "launch"
COMMANDS = [(name(page), line) for page in PAGES for line in shell_lines(page)]
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*$")


def commands_in(line: str) -> list[list[str]]:
    """Return the simple commands of a shell line as words, without variables set before them."""
    words = shlex.split(line, posix=True)
    commands: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "&&", "||", ";", "&"):
            commands.append([])
        elif commands[-1] or not ASSIGNMENT.match(word):
            commands[-1].append(word)
    return [command for command in commands if command]


@pytest.fixture
def parsed_only(monkeypatch):
    """Let every subcommand of ``engram`` parse its flags and then do nothing."""
    for command in cli.COMMANDS.values():
        module = importlib.import_module(command.module)
        real = getattr(module, command.function)

        @functools.wraps(real)
        def nothing(config):
            return 0

        monkeypatch.setattr(module, command.function, nothing)


def check_engram(words):
    try:
        code = cli.main(words)
    except SystemExit as ended:
        code = ended.code
    assert code in (0, None), f"engram {shlex.join(words)}: exit code {code}"
    if words[:1] == ["up"] and len(words) > 1:
        check_launch(words[1], [word for word in words[2:] if not word.startswith("--")])


def check_launch(file, assignments):
    load_graph(find_launch_file(file), parse_assignments(assignments))


def check(words):
    program = Path(words[0]).name
    if program == "engram":
        check_engram(words[1:])
    elif program.startswith("python") and words[1:2] == ["-m"] and words[2].startswith("engram."):
        assert importlib.util.find_spec(words[2]), f"no module {words[2]}"
    elif program == "make":
        targets = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(words[1:]) & set(targets) or words[1:] == [] or "=" in words[1], f"no target in {words}"
    elif program == "ros2" and words[1] == "launch":
        assert words[2] == "engram" and (LAUNCH / words[3]).is_file(), f"no launch file {words[3]}"
        check_launch(words[3].replace(".launch.py", ""), words[4:])
    elif program == "ros2" and words[1:3] == ["service", "call"]:
        package, kind, message = words[4].split("/")
        assert hasattr(importlib.import_module(f"{package}.{kind}"), message), f"no service type {words[4]}"
    elif program.startswith("lerobot-"):
        scripts = importlib.metadata.entry_points(group="console_scripts")
        assert program in {script.name for script in scripts}, f"no command {program}"


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line[:60]}" for page, line in COMMANDS])
def test_the_command_exists(page, line, parsed_only, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words in commands_in(line):
        check(words)


@pytest.mark.parametrize("line", ["engram evil base", "engram eval base --no-such-flag 1", "engram up sim no_such:=1"])
def test_a_command_that_does_not_exist_is_found(line, parsed_only):
    with pytest.raises((AssertionError, Exception)):
        for words in commands_in(line):
            check(words)


def test_shell_blocks_are_valid_shell():
    for page, line in COMMANDS:
        done = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{page}: {line}: {done.stderr}"
