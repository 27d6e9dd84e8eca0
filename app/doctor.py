"""``engram doctor``: is this machine fit to run the loop, and if not, what to do about it.

Every check really does the thing (renders a picture, sends a message between two processes), in a process of its own
where it could crash, and says what to do in one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import files as distribution_files
from importlib.resources import files
from pathlib import Path
from typing import Literal

import psutil

from engram.app.process import check_domain
from engram.app.ros_environment import ADVICE, foreign_ros
from engram.app.shared_memory import dead_files
from engram.core.ports import port_owner
from engram.core.system_packages import LIBRARIES

Level = Literal["ok", "warn", "fail"]
GIB = 1 << 30
SHM_NEEDED = 640 << 20
"""Shared memory for ten processes with a segment of 64 MB each (config/fastdds.xml)."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""Colours of ROS's log, on their way to a line of ours."""
COLORS = {"ok": 32, "warn": 33, "fail": 31}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INTERFACES = {
    "msg": (
        *("ActionChunk", "Experience", "ExperienceAck", "GateVerdict", "Intervention", "MemoryConflict"),
        *("ObjectObservation", "PolicyManifest", "SceneEdge", "SceneGraphUpdate", "SceneNode", "SceneObservation"),
        *("MemoryContext", "TaskStatus", "Verdict", "WeightChunk"),
    ),
    "srv": (
        *("GetGraph", "MemoryConflicts", "MemoryMerge", "MemoryQuery", "MemoryResolve"),
        *("PromotePolicy", "ResetSim", "RollbackPolicy"),
    ),
    "action": ("ExecuteTask",),
}
RENDER = """
import mujoco
xml = '<mujoco><worldbody><light pos="0 0 3"/><geom type="plane" size="1 1 .1" rgba="1 0 0 1"/></worldbody></mujoco>'
model = mujoco.MjModel.from_xml_string(xml)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 64, 64) as renderer:
    renderer.update_scene(data)
    print(int(renderer.render()[48, 32, 0]))
"""


@dataclass(frozen=True)
class Check:
    """The outcome of one check; ``advice`` says what to do when it is not ok."""

    name: str
    level: Level
    found: str
    advice: str = ""


@dataclass(frozen=True)
class DoctorConfig:
    """Check this machine and say what to do; exit code 1 when something that the loop needs is missing."""

    port: int = 8080
    """TCP port that the viewer page would use."""
    domain: int = 101
    """ROS_DOMAIN_ID for the loopback test; choose one that nobody uses."""
    json: bool = False
    """Print one JSON list instead of lines."""


def run_python(
    arguments: list[str], timeout_s: float = 60.0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run our interpreter in a process of its own; a time-out is returned as exit code 124."""
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {timeout_s:g} s")


def last_line(text: str) -> str:
    """Return the last line of ``text`` that says anything."""
    lines = [line for line in ANSI.sub("", text).splitlines() if line.strip()]
    return lines[-1].strip() if lines else "(no output)"


def check_python(_: DoctorConfig) -> Check:
    """CPython 3.12 on x86-64 Linux: what the ROS wheels and torch are built for."""
    found = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()} {platform.system()}"
    )
    fits = sys.version_info[:2] == (3, 12) and platform.machine() == "x86_64" and sys.platform == "linux"
    return Check("python", "ok" if fits else "fail", found, "" if fits else "use CPython 3.12 on x86-64 Linux")


def check_cores(_: DoctorConfig) -> Check:
    """Two cores run the loop in real time, one does it slower."""
    cores = len(os.sched_getaffinity(0))
    if cores >= 2:
        return Check("cores", "ok", f"{cores} usable")
    return Check("cores", "warn", "1 usable", "the loop runs in lock-step, but slower than real time")


def check_memory(_: DoctorConfig) -> Check:
    """Seven processes, one of them with torch and one with a text encoder, take about 3 GiB together."""
    free = psutil.virtual_memory().available / GIB
    if free >= 4:
        return Check("memory", "ok", f"{free:.1f} GiB available")
    return Check("memory", "warn", f"{free:.1f} GiB available", "close other programs: the node set needs about 3 GiB")


def check_disk(_: DoctorConfig) -> Check:
    """Recordings and memories grow."""
    free = shutil.disk_usage(Path.cwd()).free / GIB
    if free >= 2:
        return Check("disk", "ok", f"{free:.1f} GiB free in {Path.cwd()}")
    return Check("disk", "warn" if free > 0.5 else "fail", f"{free:.2f} GiB free", "free some space: 2 GiB or more")


def check_shm(_: DoctorConfig) -> Check:
    """Fast DDS carries images through /dev/shm; containers often have only 64 MB of it."""
    try:
        usage = shutil.disk_usage("/dev/shm")
    except FileNotFoundError:
        return Check("shared memory", "fail", "no /dev/shm", "mount one: mount -t tmpfs -o size=1g tmpfs /dev/shm")
    writable = os.access("/dev/shm", os.W_OK)
    found = f"{usage.free >> 20} MiB free of {usage.total >> 20} in /dev/shm"
    if writable and usage.free >= SHM_NEEDED:
        return Check("shared memory", "ok", found)
    advice = "containers: docker run --shm-size=1g" if writable else "make /dev/shm writable for this user"
    return Check("shared memory", "warn" if writable else "fail", found, advice)


def check_shm_left(_: DoctorConfig) -> Check:
    """A killed node leaves its 70 MB of shared memory behind."""
    name = "shared memory left behind"
    count, size = dead_files()
    if not count:
        return Check(name, "ok", "none")
    found = f"{count} segments of dead processes, {size >> 20} MiB in /dev/shm"
    return Check(name, "warn", found, "start engram up or engram demo: they remove it; or: fastdds shm clean")


def check_egl(_: DoctorConfig) -> Check:
    """Render a red floor and look at a pixel."""
    result = run_python(["-c", RENDER], environment={"MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl")})
    if result.returncode == 0 and int(last_line(result.stdout)) > 60:
        return Check("EGL rendering", "ok", "a picture was rendered")
    found = "the picture is black" if result.returncode == 0 else last_line(result.stderr)
    return Check("EGL rendering", "fail", found, f"apt-get install {LIBRARIES}, or MUJOCO_GL=osmesa")


def check_ros(_: DoctorConfig) -> Check:
    """Look whether the nodes would import the ROS packages of this environment."""
    if wrong := foreign_ros():
        return Check("ROS packages", "fail", wrong, ADVICE)
    return Check("ROS packages", "ok", "no other ROS in the way")


def check_interfaces(_: DoctorConfig) -> Check:
    """Import every message and print one digest of their type hashes: it must be equal on all machines."""
    missing = []
    for kind, names in INTERFACES.items():
        module = import_module(f"engram_interfaces.{kind}")
        missing += [f"{kind}/{name}" for name in names if not hasattr(module, name)]
    advice = "rebuild them: uv sync --inexact --reinstall-package engram-interfaces (or colcon build)"
    if missing:
        return Check("interfaces", "fail", f"engram_interfaces lacks {', '.join(missing)}", advice)
    hashes = type_hashes()
    if not hashes:
        return Check("interfaces", "warn", "all importable; no type descriptions are installed", advice)
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:12]
    return Check("interfaces", "ok", f"{len(hashes)} types, digest {digest} (equal on every machine of a robot)")


def type_hashes() -> list[str]:
    """Return ``type hash`` of every installed engram_interfaces type, sorted."""
    found = set()
    for path in interface_descriptions():
        for entry in json.loads(path.read_text())["type_hashes"]:
            if entry["type_name"].startswith("engram_interfaces/"):
                found.add(f"{entry['type_name']} {entry['hash_string']}")
    return sorted(found)


def interface_descriptions() -> list[Path]:
    """Return the installed JSON type descriptions, from the wheel or a sourced ROS workspace."""
    prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    share = [p / "share" / "engram_interfaces" for p in prefixes]
    for folder in share:
        if folder.is_dir():
            return sorted(folder.glob("*/*.json"))
    listed = distribution_files("engram-interfaces") or ()
    return sorted(Path(str(f.locate())) for f in listed if f.suffix == ".json" and "engram_interfaces" in f.parts)


def check_dds(config: DoctorConfig) -> Check:
    """Send images between two processes with the profile that the nodes use."""
    profile = Path(str(files("engram").joinpath("config", "fastdds.xml")))
    if not profile.is_file():
        return Check("DDS loopback", "fail", f"{profile} is missing", "reinstall: uv sync --inexact")
    environment = {"ROS_DOMAIN_ID": str(config.domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    environment |= {"FASTDDS_DEFAULT_PROFILES_FILE": str(profile)}
    result = run_python(["-m", "engram.nodes.loopback"], environment=environment)
    advice = "allow loopback multicast and UDP ports 7400 and up; see 'shared memory' above; try another --domain"
    try:
        times = json.loads(last_line(result.stdout))
    except json.JSONDecodeError:
        return Check("DDS loopback", "fail", last_line(result.stderr), advice)
    if "error" in times:
        return Check("DDS loopback", "fail", times["error"], advice)
    found = ", ".join(f"{int(size):,} B {t['p50_ms']:.1f}/{t['p99_ms']:.1f}" for size, t in times.items())
    return Check("DDS loopback", "ok", f"round trip p50/p99 ms: {found}")


def check_live_graph(_: DoctorConfig) -> Check:
    """Look at the nodes that run now: two definitions of one type match silently to nothing."""
    domain = os.environ.get("ROS_DOMAIN_ID", "0")
    result = run_python(["-m", "engram.nodes.loopback", "graph"])
    if result.returncode != 0:
        found = f"exit code {result.returncode}: {last_line(result.stderr)}"
        return Check("live nodes", "fail", found, "run it again; see 'DDS loopback' above")
    graph = json.loads(last_line(result.stdout))
    if graph["conflicts"]:
        advice = "build engram_interfaces from the same sources on both sides"
        return Check("live nodes", "fail", "; ".join(graph["conflicts"]), advice)
    names = ", ".join(graph["nodes"]) or "none"
    return Check("live nodes", "ok", f"on domain {domain}: {names}")


def check_torch(_: DoctorConfig) -> Check:
    """One torch thread a process: two collapse beside other busy processes."""
    result = run_python(
        ["-c", "import torch; print(torch.__version__, torch.get_num_threads(), torch.cuda.is_available())"]
    )
    if result.returncode != 0:
        return Check("torch", "fail", last_line(result.stderr), "uv sync --inexact")
    version, threads, cuda = last_line(result.stdout).split()
    found = f"{version}, {threads} threads here (our nodes use 1 each), GPU: {'yes' if cuda == 'True' else 'no, CPU'}"
    return Check("torch", "ok", found)


def check_browser(_: DoctorConfig) -> Check:
    """Only the tests of the viewer page need a browser on this machine."""
    for name in BROWSERS:
        if path := shutil.which(name):
            return Check("browser for tests", "ok", path)
    return Check("browser for tests", "warn", "no chromium", "apt-get install chromium (only the page's tests need it)")


def check_port(config: DoctorConfig) -> Check:
    """The viewer page needs a TCP port."""
    if owner := port_owner(config.port):
        advice = f"engram demo --port {config.port + 1}, or end that process"
        return Check("viewer port", "warn", f"{config.port} is in use by {owner}", advice)
    return Check("viewer port", "ok", f"{config.port} is free")


CHECKS: tuple[Callable[[DoctorConfig], Check], ...] = (
    check_python,
    check_cores,
    check_memory,
    check_disk,
    check_shm,
    check_shm_left,
    check_torch,
    check_egl,
    check_ros,
    check_interfaces,
    check_dds,
    check_live_graph,
    check_browser,
    check_port,
)


def run_check(check: Callable[[DoctorConfig], Check], config: DoctorConfig) -> Check:
    """Run one check; what it raises is a failed check, so that the others still run."""
    try:
        return check(config)
    except Exception as error:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        return Check(name, "fail", f"{type(error).__name__}: {error}", "reinstall: make demo, or uv sync --inexact")


def show(check: Check) -> None:
    """Print one line, and one more with the advice."""
    color = COLORS[check.level]
    level = check.level.ljust(5)
    print(
        f"\x1b[{color}m{level}\x1b[0m" if sys.stdout.isatty() else level, f"{check.name:18} {check.found}", flush=True
    )
    if check.advice:
        print(f"      {'':18} -> {check.advice}", flush=True)


def doctor(config: DoctorConfig) -> int:
    """Run all checks and print them as they end; 1 when one failed."""
    port_owner(config.port)  # a port or a domain that cannot be is the caller's mistake, not the machine's
    check_domain(config.domain)
    results = []
    for check in CHECKS:
        results.append(run_check(check, config))
        if not config.json:
            show(results[-1])
    failed = [r.name for r in results if r.level == "fail"]
    if config.json:
        print(json.dumps([asdict(r) for r in results]))
    else:
        print(f"\n{'not ready: ' + ', '.join(failed) if failed else 'ready'}")
    return 1 if failed else 0
