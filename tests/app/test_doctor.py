"""The doctor really does what it checks, names what is wrong and never stops at the first problem."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engram.app import doctor
from engram.app.doctor import Check, DoctorConfig
from engram.core.errors import InvalidInputError
from engram.core.ports import PortInUseError, free_port, port_owner, require_free_port
from engram.core.system_packages import LIBRARIES

PEER = """
import sys, time
import rclpy
from rclpy.node import Node
from std_msgs.msg import Bool, String
rclpy.init()
node = Node(sys.argv[1])
end = node.create_publisher(String, "same", 1) if sys.argv[1] == "a" else node.create_publisher(Bool, "same", 1)
print("ready", flush=True)
time.sleep(30)
"""


def test_a_port_in_use_is_named_with_its_owner() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert f"(pid {os.getpid()})" in port_owner(port)
        with pytest.raises(PortInUseError, match=rf"port {port} is in use by .*choose another with --port"):
            require_free_port(port, "--port")
        check = doctor.check_port(DoctorConfig(port=port))
        assert check.level == "warn"
        assert f"--port {port + 1}" in check.advice
    assert port_owner(free_port()) == ""
    with pytest.raises(InvalidInputError, match=r"port 99999: expected 1\.\.65535"):
        doctor.doctor(DoctorConfig(port=99999))
    with pytest.raises(InvalidInputError, match=r"domain 300: expected 0\.\.101"):
        doctor.doctor(DoctorConfig(domain=300))


def test_the_colours_of_a_log_line_do_not_reach_ours() -> None:
    assert doctor.last_line("\x1b[31m[ERROR] [rcl]: no node\x1b[0m\n\x1b[0m\n") == "[ERROR] [rcl]: no node"


@pytest.mark.render
def test_rendering_is_really_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_egl(DoctorConfig()).level == "ok"
    monkeypatch.setattr(doctor, "RENDER", "print(0)")
    assert doctor.check_egl(DoctorConfig()).found == "the picture is black"
    monkeypatch.setattr(doctor, "RENDER", "raise ImportError('libEGL.so.1: cannot open')")
    broken = doctor.check_egl(DoctorConfig())
    assert broken.level == "fail"
    assert "libEGL.so.1" in broken.found
    assert f"apt-get install {LIBRARIES}," in broken.advice


HOW_TO = ("docs/how-to/install_from_wheels.md", "docs/how-to/troubleshooting.md")


@pytest.mark.parametrize("file", [".ci/setup", "docs/tutorials/first_run.md", *HOW_TO])
def test_what_is_to_be_installed_is_the_same_everywhere(file: str) -> None:
    root = Path(doctor.__file__).resolve().parents[1]
    assert LIBRARIES in " ".join((root / file).read_text().split())


def test_interfaces_are_complete_and_have_one_digest() -> None:
    check = doctor.check_interfaces(DoctorConfig())
    assert check.level == "ok", check.found
    hashes = doctor.type_hashes()
    assert any(line.startswith("engram_interfaces/action/ExecuteTask ") for line in hashes)
    assert all(line.split()[1].startswith("RIHS01_") for line in hashes)


def test_a_missing_message_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.INTERFACES, "msg", ("TaskStatus", "Telepathy"))
    check = doctor.check_interfaces(DoctorConfig())
    assert (check.level, check.found) == ("fail", "engram_interfaces lacks msg/Telepathy")


@pytest.mark.ros
def test_messages_cross_between_two_processes() -> None:
    check = doctor.check_dds(DoctorConfig(domain=int(os.environ["ROS_DOMAIN_ID"])))
    assert check.level == "ok", check.found
    assert "921,600 B" in check.found


@pytest.mark.ros
def test_two_definitions_on_one_topic_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    command = [sys.executable, "-c", PEER]
    peers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "ab"]
    try:
        for peer in peers:
            assert peer.stdout is not None
            assert peer.stdout.readline() == "ready\n"
        check = doctor.check_live_graph(DoctorConfig())
    finally:
        for peer in peers:
            peer.kill()
            peer.communicate()
    assert check.level == "fail"
    assert "/same: " in check.found
    assert "std_msgs/msg/Bool" in check.found


def test_one_broken_check_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check_broken_thing(_: DoctorConfig) -> Check:
        raise RuntimeError("it smokes")

    monkeypatch.setattr(doctor, "CHECKS", (check_broken_thing, doctor.check_python))
    assert doctor.doctor(DoctorConfig(json=True)) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], first["level"], first["found"]) == ("broken thing", "fail", "RuntimeError: it smokes")
    assert (second["name"], second["level"]) == ("python", "ok")
    monkeypatch.setattr(doctor, "CHECKS", (doctor.check_python, doctor.check_disk))
    assert doctor.doctor(DoctorConfig()) == 0
    assert capsys.readouterr().out.endswith("\nready\n")


def test_a_silent_process_is_a_failed_check(tmp_path: Path) -> None:
    result = doctor.run_python(["-c", "import time; time.sleep(60)"], timeout_s=0.2)
    assert (result.returncode, result.stderr) == (124, "no answer within 0.2 s")
