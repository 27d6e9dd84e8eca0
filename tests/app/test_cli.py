"""The command line: only what works is listed, mistakes are named, heavy imports wait."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engram.app import cli
from engram.app.cli import COMMANDS, main
from engram.core.errors import InvalidInputError


def test_help_lists_every_command_without_heavy_imports() -> None:
    code = (
        "import sys; from engram.app.cli import main; main(['--help']);"
        "print('heavy:', sorted({'torch', 'rclpy', 'mujoco', 'tyro', 'lerobot'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.rstrip().endswith("heavy: []")
    for name, command in COMMANDS.items():
        assert f"  {name}" in out
        assert command.summary in out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_its_own_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(getattr(import_module(COMMANDS[name].module), COMMANDS[name].function))
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: engram {name}" in capsys.readouterr().out


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmo"]) == 2
    assert "unknown command 'dmo'; did you mean 'demo'? valid: " in capsys.readouterr().err
    assert main([]) == 2
    assert main(["up", "nowhere"]) == 2
    assert "engram up: unknown launch file 'nowhere'" in capsys.readouterr().err
    assert main(["up", "sim", "nonsense"]) == 2
    assert "'nonsense': expected name:=value" in capsys.readouterr().err


def test_an_error_about_a_config_names_the_option_that_was_typed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["merge", "somewhere", "--root", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"engram merge: --root: {tmp_path} exists; choose another folder or remove it\n"


def test_no_learner_is_described_as_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "With --no-learner nothing is trained beside the loop" in said
    assert "what happens is still kept in the robot's spool" in said


def test_our_errors_and_ctrl_c_end_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise InvalidInputError("seed -1: expected 0 or more")

    monkeypatch.setattr(cli, "_run", refuse)
    assert main(["up"]) == 2
    assert capsys.readouterr().err == "engram up: seed -1: expected 0 or more\n"

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupt)
    assert main(["up"]) == 130


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "/data/x: No space left on device"),
        (OSError("no route to host"), "no route to host"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, told: str
) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", refuse)
    assert main(["train"]) == 1
    assert capsys.readouterr().err == f"engram train: {told}\n"


def test_places_at_home_are_those_of_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    assert main(["merge", "~/part", "--root=~/data"]) == 2
    assert capsys.readouterr().err.startswith(f"engram merge: --root: {tmp_path}/data exists")
    assert main(["merge", "~/part", "--root=~/new"]) == 2
    assert capsys.readouterr().err.startswith(f"engram merge: --parts: {tmp_path}/part is no recording")
    assert main(["prove", "loop", "--output=~/data"]) == 2
    assert capsys.readouterr().err == f"engram prove: --output: {tmp_path}/data is a folder, expected a file\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("engram 0.")


def run(code: str, *words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """``engram`` as a process of its own; where there is ``code``, it is the body of its command."""
    body = f"def _run(*_):\n {code}\ncli._run = _run\n" if code else ""
    imports = "import sys\nfrom engram.core.errors import InvalidInputError\nfrom engram.app import cli\n"
    source = f"{imports}{body}sys.exit(cli.main({list(words)}))"
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([sys.executable, "-c", source], text=True, env=buffered, check=False, **streams)


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    """Half a megabyte into a pipe whose other end closes after one byte."""
    long = (
        "import sys; from engram.app import cli; cli._run = lambda *_: print('x' * 2**19); sys.exit(cli.main(['up']))"
    )
    with subprocess.Popen([sys.executable, "-c", long], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


REFUSED = "print('begun'); raise InvalidInputError('seed -1')"


@pytest.mark.parametrize(
    ("code", "words", "ended", "said"),
    [
        ("print('x' * 2**19)", ["up"], 141, ""),
        ("print('a line')", ["up"], 141, ""),
        ("", ["--help"], 141, ""),
        ("", ["--version"], 141, ""),
        ("", ["memory", "--help"], 141, ""),
        (REFUSED, ["up"], 2, "engram up: seed -1\n"),
        ("pass", ["up"], 0, ""),
    ],
)
def test_a_reader_that_reads_nothing_is_no_error(code: str, words: list[str], ended: int, said: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = run(code, *words, stdout=writer)
    finally:
        os.close(writer)
    assert (ran.returncode, ran.stderr) == (ended, said)


def test_errors_into_a_pipe_that_nobody_reads_end_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run(REFUSED, "up", stdout=writer, stderr=writer).returncode == 141
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("code", "words", "ended", "said"),
    [
        ("print('a line')", ["up"], 0, ""),
        ("", ["--help"], 0, ""),
        ("", ["memory", "--help"], 0, ""),
        (REFUSED, ["up"], 2, "engram up: seed -1\n"),
    ],
)
def test_standard_output_may_be_closed(code: str, words: list[str], ended: int, said: str) -> None:
    ran = run(code, *words, stdout=None, preexec_fn=lambda: os.close(1))
    assert (ran.returncode, ran.stderr) == (ended, said)


def test_another_pipe_that_breaks_is_told() -> None:
    """A worker that died, say: nobody left standard output."""
    ran = run("import multiprocessing; a, b = multiprocessing.Pipe(); b.close(); print('begun'); a.send(1)", "up")
    assert (ran.returncode, ran.stdout) == (1, "begun\n")
    assert ran.stderr.endswith("BrokenPipeError: [Errno 32] Broken pipe\n")
