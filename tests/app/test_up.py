"""The supervisor on real processes: restarts, limits, required nodes, clean and unclean ends, nobody left behind."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

import pytest

from engram.app import cli, line_writer
from engram.app.launch_graph import LaunchGraph, NodeSpec
from engram.app.process import Process, node_command
from engram.app.up import LineSink, Supervisor, SupervisorConfig, child_environment
from engram.core.errors import InvalidInputError, UnknownNameError

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(2, 1); print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(2, 1); signal.signal(15, 1); print('up', flush=True); time.sleep(600)"


def graph(*nodes: NodeSpec) -> LaunchGraph:
    return LaunchGraph(Path("test.launch.yaml"), (), {}, nodes, {"FROM_GRAPH": "yes"})


def script(code: str, name: str = "a", **keys: object) -> NodeSpec:
    return NodeSpec("test", code, name, **keys)  # type: ignore[arg-type]


def supervise(*nodes: NodeSpec, **config: float) -> tuple[Supervisor, io.StringIO]:
    out = io.StringIO()
    supervisor = Supervisor(
        graph(*nodes),
        child_environment(None, None),
        LineSink(out),
        command=lambda spec, folder: [sys.executable, "-c", spec.executable],
        config=SupervisorConfig(poll_period_s=0.02, **config),  # type: ignore[arg-type]
    )
    return supervisor, out


def shown(supervisor: Supervisor, out: io.StringIO) -> str:
    """All that was written: another thread writes it."""
    supervisor.sink.close()  # type: ignore[attr-defined]
    return out.getvalue()


def wait(supervisor: Supervisor, condition: Callable[[], bool], seconds: float = 100.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition did not come true in time"
        supervisor.step()
        time.sleep(0.02)


def test_lines_carry_the_name_and_the_environment_of_the_graph() -> None:
    code = "import os; print(os.environ['FROM_GRAPH'], os.environ['OMP_NUM_THREADS'])"
    supervisor, out = supervise(script(code), script("print('b' * 3)", "b"))
    assert supervisor.run() == 0
    assert f"{'[a]':20} yes 1\n" in shown(supervisor, out)
    assert f"{'[b]':20} bbb\n" in out.getvalue()


def test_a_node_is_restarted_as_often_as_configured_and_then_reported() -> None:
    node = script("raise SystemExit(7)", respawn=True, respawn_delay_s=0.05, respawn_max_retries=2)
    supervisor, out = supervise(node, script(SLEEP, "b"))
    wait(supervisor, lambda: supervisor.children["a"].failed)
    assert supervisor.children["a"].starts == 3
    assert supervisor.restarts == 2
    assert supervisor.alive == ("b",)  # the others go on
    supervisor.end()
    assert supervisor.run() == 1
    assert supervisor.failures == {"a": 7}
    assert "ended, exit code 7 after 2 restarts within 300 s; it stays down" in shown(supervisor, out)


def test_only_the_restarts_of_the_last_while_count() -> None:
    """Dying for the fifth time after a month of work is no reason to stay down."""
    node = script("raise SystemExit(7)", respawn=True, respawn_delay_s=0.3)
    supervisor, _ = supervise(node, max_restarts=2, restart_window_s=0.5)
    wait(supervisor, lambda: supervisor.restarts == 5)
    assert not supervisor.failures
    supervisor.end()
    supervisor.run()


def test_a_node_that_is_misconfigured_is_not_started_again_and_ends_everything() -> None:
    ours = NodeSpec("engram", "print('error: no such thing'); raise SystemExit(2)", "a", respawn=True)
    supervisor, out = supervise(ours, script(SLEEP, "b"))
    assert supervisor.run() == 1
    assert supervisor.children["a"].starts == 1
    assert supervisor.failures == {"a": 2}
    assert "cannot work as it is configured" in shown(supervisor, out)
    assert supervisor.sink.error("a") == ": no such thing"  # type: ignore[attr-defined]


def test_a_node_that_worked_before_it_was_misconfigured_stays_down_alone(tmp_path: Path) -> None:
    code = (
        f"import pathlib; p = pathlib.Path({str(tmp_path / 'ran')!r}); c = 2 if p.exists() else 1; p.touch(); exit(c)"
    )
    ours = NodeSpec("engram", code, "a", respawn=True, respawn_delay_s=0.05)
    supervisor, _ = supervise(ours, script(SLEEP, "b"))
    wait(supervisor, lambda: supervisor.children["a"].failed)
    assert supervisor.children["a"].starts == 2
    assert supervisor.alive == ("b",)
    supervisor.end()
    assert supervisor.run() == 1


def test_kill_minus_nine_is_answered_by_a_restart() -> None:
    supervisor, _ = supervise(script(SLEEP, respawn=True))
    wait(supervisor, lambda: supervisor.children["a"].process is not None)
    first = supervisor.children["a"].process
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    wait(supervisor, lambda: supervisor.children["a"].starts == 2)
    assert supervisor.children["a"].exit_code == -signal.SIGKILL
    supervisor.end()
    assert supervisor.run() == 0


def test_without_respawn_an_error_is_final_and_an_end_is_not() -> None:
    supervisor, _ = supervise(script("raise SystemExit(3)"), script("pass", "b"))
    assert supervisor.run() == 1
    assert supervisor.failures == {"a": 3}


def test_the_end_of_a_required_node_ends_everything() -> None:
    supervisor, out = supervise(script("raise SystemExit(1)", required=True), script(SLEEP, "b"))
    assert supervisor.run() == 1
    assert "is required: ending everything" in shown(supervisor, out)
    assert supervisor.failures == {"a": 1}


@pytest.mark.parametrize(("code", "strongest"), [(STUBBORN, "SIGTERM"), (DEAF, "SIGKILL")])
def test_a_node_that_does_not_end_gets_stronger_signals(code: str, strongest: str) -> None:
    supervisor, out = supervise(script(code), end_timeout_s=0.3)
    wait(supervisor, lambda: "up" in out.getvalue())
    supervisor.end()
    assert supervisor.run() == (0 if strongest == "SIGTERM" else 1)
    assert f"has not ended; sending {strongest}" in shown(supervisor, out)


def test_a_second_end_does_not_wait() -> None:
    supervisor, out = supervise(script(STUBBORN), end_timeout_s=1000.0)
    wait(supervisor, lambda: "up" in out.getvalue())
    supervisor.end()
    supervisor.end()
    assert supervisor.run() == 0


UP = """
import sys
from engram.app import process, up
process.EXECUTABLES = ("sim_node",)
up.node_command = lambda spec, folder: [sys.executable, "-c", spec.executable]
up.Supervisor.__init__.__defaults__ = (up.node_command, None)
raise SystemExit(up.up(up.UpConfig(file=sys.argv[1])))
"""


TELL_PID = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def start_up(folder: Path, code: str = TELL_PID) -> subprocess.Popen[str]:
    """``engram up`` as a process of its own on a file with two nodes that run ``code``; it sleeps by default."""
    path = folder / "two.launch.yaml"
    nodes = "".join(f"- node: {{pkg: test, exec: {code!r}, name: {name}}}\n" for name in "ab")
    path.write_text("launch:\n" + nodes.replace("'", '"', 0))
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(UP), str(path)], stdout=subprocess.PIPE, text=True)


def read_pids(running: subprocess.Popen[str]) -> list[int]:
    assert running.stdout is not None
    pids: list[int] = []
    while len(pids) < 2:
        line = running.stdout.readline()
        assert line, "engram up ended early"
        if "] " in line and " pid " in line.split("]", 1)[1] and "started" not in line:
            pids.append(int(line.split()[-1]))
    return pids


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_gone(pids: list[int]) -> None:
    end = time.monotonic() + 100
    while not all(gone(p) for p in pids):
        assert time.monotonic() < end, f"still running: {[p for p in pids if not gone(p)]}"
        time.sleep(0.05)


def test_ctrl_c_ends_every_process_and_returns_zero(tmp_path: Path) -> None:
    running = start_up(tmp_path)
    pids = read_pids(running)
    running.send_signal(signal.SIGINT)
    assert running.wait(100) == 0
    assert all(gone(p) for p in pids)


def test_nodes_end_at_the_first_signal_also_where_a_script_started_them_in_the_background() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for a command with &
    try:
        process = Process([sys.executable, "-c", SLEEP], os.environ, (lines := []).append)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        end = time.monotonic() + 100
        while not lines:
            assert time.monotonic() < end, "it has not come up"
            time.sleep(0.01)
        process.signal(signal.SIGINT)
        wait_gone([process.pid])
        assert process.poll() == -signal.SIGINT
    finally:
        process.signal(signal.SIGKILL)
        process.close()


def test_nobody_is_left_behind_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    running = start_up(tmp_path)
    pids = read_pids(running)
    running.kill()
    running.wait(100)
    wait_gone(pids)


@pytest.mark.parametrize("of", ["/r1", "", "r1/", "r 1", "r2"])
def test_a_learner_of_no_other_robot_is_refused(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "sim", "namespace:=r2", f"learner_of:={of}"]) == 2
    assert f"learner_of: {of!r}" in capsys.readouterr().err


def test_log_files_hold_the_lines_of_one_node(tmp_path: Path) -> None:
    sink = LineSink(None, tmp_path / "logs")
    sink("a", "one")
    sink("b", "two")
    sink("a", "three")
    sink.close()
    assert sink.tail("a", 1) == ["three"]
    assert (tmp_path / "logs" / "a.log").read_text() == "one\nthree\n"


def test_a_full_disk_ends_a_log_and_not_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/dev/full")
    sink = LineSink(None, tmp_path)
    for line in ("one", "two"):
        sink("a", line)
        sink("b", line)
    sink.close()
    lines = sink.tail("a", 5)
    assert [lines[0], lines[-1]] == ["one", "two"] and sum("this log goes no further" in line for line in lines) == 1
    assert (tmp_path / "b.log").read_text() == "one\ntwo\n"


def test_a_node_does_not_wait_for_a_reader_that_left(tmp_path: Path) -> None:
    """200 kB into a console that nobody reads: a pipe alone holds 64."""
    reader, writer = os.pipe()
    console = os.fdopen(writer, "w")
    os.close(reader)
    sink = LineSink(console, tmp_path)
    process = Process([sys.executable, "-c", "for i in range(2000): print('x' * 100)"], os.environ, partial(sink, "a"))
    try:
        wait_gone([process.pid])
    finally:
        process.signal(signal.SIGKILL)
        process.close()
        sink.close()
        with contextlib.suppress(BrokenPipeError):
            console.close()
    assert process.poll() == 0
    assert (tmp_path / "a.log").read_text() == ("x" * 100 + "\n") * 2000
    assert sink.tail("a", 1) == ["x" * 100]


@contextlib.contextmanager
def unread_console() -> Iterator[tuple[TextIO, int]]:
    """A console that nobody reads, filled up, and the end at which it may be read; non-blocking."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    console = os.fdopen(writer, "w")
    try:
        yield console, reader
    finally:
        os.close(reader)  # it ends who hangs in a write
        with contextlib.suppress(BrokenPipeError):
            console.close()


def read_to_the_end(reader: int, found: list[str]) -> None:
    """Read all that comes into ``found``, without the dots that filled the console before."""
    with open(reader, closefd=False) as stream:
        found.extend(line.lstrip(".").rstrip("\n") for line in stream)


def test_neither_nodes_nor_their_supervisor_wait_for_a_console_that_nobody_reads(tmp_path: Path) -> None:
    """``engram up | less``, or Ctrl-S: a node that waited for it would not brake."""
    chatty = script("for i in range(2000): print('x' * 100)")
    node = script("raise SystemExit(7)", "b", respawn=True, respawn_delay_s=0.02, respawn_max_retries=3)
    with unread_console() as (console, _):
        sink = LineSink(console, tmp_path)
        supervisor = Supervisor(
            graph(chatty, node), child_environment(None, None), sink,
            command=lambda spec, folder: [sys.executable, "-c", spec.executable],
        )  # fmt: skip
        watch = threading.Thread(target=supervisor.run, daemon=True)
        watch.start()
        watch.join(100)
        assert not watch.is_alive(), "the supervisor waits for the console"
        assert supervisor.children["a"].exit_code == 0 and supervisor.restarts == 3
        closing = threading.Thread(target=sink.close, daemon=True)
        closing.start()
        closing.join(100)
        assert not closing.is_alive(), "the end waits for the console"
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert lines.count("x" * 100) == 2000


def test_a_console_that_is_read_again_shows_the_newest_lines_in_order_and_how_many_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_writer, "QUEUED_MAX", 10_000)
    found: list[str] = []
    with unread_console() as (console, reader):
        sink = LineSink(console)
        talk = threading.Thread(target=lambda: [sink("a", str(number)) for number in range(5000)], daemon=True)
        talk.start()
        talk.join(100)
        assert not talk.is_alive(), "who says something waits for the console"
        reading = threading.Thread(target=read_to_the_end, args=(reader, found))
        reading.start()
        sink.close()
        console.close()
        reading.join(100)
    shown_next, left_out = 0, 0
    for line in found:
        if "nobody read them" in line:
            left_out += int(line.removeprefix("[engram up]").split()[0])
        else:
            assert int(line.split()[-1]) == shown_next + left_out
            shown_next += 1
    assert left_out > 3000 and shown_next + left_out == 5000


def test_a_console_that_is_read_late_shows_every_line_of_a_short_command() -> None:
    found: list[str] = []
    with unread_console() as (console, reader):
        sink = LineSink(console)
        process = Process(
            [sys.executable, "-c", "for i in range(5000): print(i, 'x' * 90)"], os.environ, partial(sink, "a")
        )
        wait_gone([process.pid])
        process.close()
        reading = threading.Thread(target=read_to_the_end, args=(reader, found))
        reading.start()
        sink.close()
        console.close()
        reading.join(100)
    assert [int(line.split()[1]) for line in found] == [*range(5000)]


def test_the_command_ends_while_nobody_reads_what_it_printed(tmp_path: Path) -> None:
    up = tmp_path / "up"
    code = f"import time; [print('x' * 100) for _ in range(5000)]; open('{up}', 'w').close(); time.sleep(600)"
    running = start_up(tmp_path, code)
    try:
        end = time.monotonic() + 100
        while not up.exists():
            assert time.monotonic() < end, "the nodes wait for the console"
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        assert running.wait(100) == 0
    finally:
        running.kill()


def test_unknown_executables_and_domains_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"'sim_nod'; did you mean 'sim_node'"):
        node_command(NodeSpec("engram", "sim_nod", "sim"), Path())
    with pytest.raises(InvalidInputError, match=r"domain 500: expected 0\.\.101"):
        child_environment(500, None)


def test_what_the_user_has_set_wins_over_our_defaults() -> None:
    environment = child_environment(7, "LOCALHOST", {"OMP_NUM_THREADS": "4", "ROS_DOMAIN_ID": "3"})
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["MUJOCO_GL"] == "egl"
    assert (environment["ROS_DOMAIN_ID"], environment["ROS_AUTOMATIC_DISCOVERY_RANGE"]) == ("7", "LOCALHOST")


ECHO = """
import sys
import rclpy
from rclpy.node import Node
rclpy.init(args=["x", *sys.argv[1:]])
node = Node("x", automatically_declare_parameters_from_overrides=True)
print(node.get_fully_qualified_name(), *(repr(node.get_parameter(n).value) for n in ("a", "b.c", "names", "empty")))
"""


@pytest.mark.ros
@pytest.mark.parametrize("namespace", ["", "r1", "/fleet/r1"])
def test_launch_parameters_win_over_the_parameter_file_in_a_real_node(tmp_path: Path, namespace: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("/**: {ros__parameters: {a: 1, b: {c: 1.0}}}\n/**/small: {ros__parameters: {a: 2, b: {c: 2.0}}}\n")
    parameters = (("", str(file)), ("a", 3), ("names", ["x", "y"]), ("empty", ""))
    spec = NodeSpec("test", "x", "small", namespace, parameters=parameters)
    command = [sys.executable, "-c", ECHO, *spec.ros_arguments(tmp_path)]
    out = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(int(os.environ["ROS_DOMAIN_ID"]), "LOCALHOST"),
    )
    name = {"": "/small", "r1": "/r1/small"}.get(namespace, "/fleet/r1/small")
    assert out.stdout.split() == [name, "3", "2.0", "['x',", "'y']", "''"]
