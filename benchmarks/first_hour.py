"""The first hour of a new user: every command of the README, in a fresh clone, timed.

    python -m engram.benchmarks.first_hour

Commands that would run for hours, or until Ctrl-C, run shorter; the report shows what ran in their place. Commands that
need a ROS installation are named and not run. Prints one row a command; the last line is JSON.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.provenance import machine

SHORTER = (
    ("LEARNING=1 make demo", "LEARNING=1 HEADLESS=1 make demo"),  # it ends by itself
    ("make demo", "HEADLESS=1 EPISODES=1 make demo"),
    ("--episodes 800", "--episodes 2 --tasks reach --part-episodes 2"),
    ("--steps 18000 --balance 1.0 --processes 2", "--steps 20 --batch-size 16"),
    ("engram eval outputs/mine/policy --episodes 100", "engram eval outputs/mine/policy --episodes 2 --tasks reach"),
    ("engram demo --policy", "HEADLESS=1 EPISODES=1 engram demo --policy"),
)
"""Part of a command -> what is run instead; the first that fits."""
UNTIL_STOPPED_S = 60.0
"""How long ``engram up`` runs before it gets Ctrl-C [s]."""
NEEDS_ROS = ("colcon", "ros2", "source install/")
LIMIT_S = 1800.0
"""Of one command [s]."""


@dataclass(frozen=True)
class FirstHourConfig:
    """Where the clone is made and the report goes."""

    work: str = ""
    """Folder for the fresh clone and its home; empty: a temporary one."""
    output: Path = RESULTS / "first_hour.json"
    """Report file."""


@dataclass
class Row:
    """One command of the README."""

    command: str
    ran: str  # "" = not run
    seconds: float = 0.0
    exit_code: int | None = None
    last_lines: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    """The JSON object of its last line, if there is one."""


def commands(readme: str) -> list[str]:
    """Return the commands of the README's bash blocks in their order, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", readme, flags=re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [bare for line in lines if (bare := line.split("   #")[0].split("  #")[0].strip())]


def what_runs(command: str) -> str:
    """Return what is run for ``command``; empty where it cannot be run here."""
    if command.startswith(NEEDS_ROS):
        return ""
    if command.startswith("HEADLESS"):
        return command
    for part, instead in SHORTER:
        if part in command:
            return command.replace(part, instead)
    return command


def run(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run ``command`` in a shell with the environment active; return its exit code and lines."""
    active = f"if [ -f .venv/bin/activate ]; then source .venv/bin/activate; fi; {command}"
    stopped = shlex.split(command)[:2] == ["engram", "up"]
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(
            ["bash", "-c", f"exec 2>&1; {active}"], cwd=folder, env=environment, stdout=log, start_new_session=True
        )
        try:
            child.wait(UNTIL_STOPPED_S if stopped else LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGINT)
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        log.seek(0)
        return child.returncode, log.read().splitlines()


def main(config: FirstHourConfig) -> int:
    """Clone, run and report; 1 if a command failed."""
    where, root = machine(), Path(__file__).resolve().parents[1]
    work = Path(config.work or tempfile.mkdtemp(prefix="engram-first-hour-"))
    clone, home = work / "engram", work / "home"
    subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
    keep = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {
        **keep,
        "ROS_DOMAIN_ID": "86",
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "XDG_DATA_HOME": str(home),
    }
    rows = []
    for command in commands((clone / "README.md").read_text()):
        row = Row(command, what_runs(command))
        if row.ran:
            began = time.monotonic()
            row.exit_code, lines = run(row.ran, clone, environment)
            row.seconds = round(time.monotonic() - began, 1)
            row.last_lines = [line[:200] for line in lines[-3:]]
            if lines and lines[-1].startswith("{"):
                row.result = json.loads(lines[-1])
        print(f"{row.seconds:8.1f} s  exit {row.exit_code}  {row.ran or 'not run: ' + command}", file=sys.stderr)
        rows.append(row)
    save_report(config.output, "first_hour", where, config, figures=figures(rows), commands=[vars(row) for row in rows])
    return int(any(row.exit_code for row in rows))


def figures(rows: list[Row]) -> list[dict[str, Any]]:
    """Return how many commands succeeded, and how long set-up and demo took."""
    ran = [row for row in rows if row.ran]
    failed = sum(bool(row.exit_code) for row in ran)
    first, again = [row for row in rows if "make demo" in row.command][:2]
    moving = again.result.get("moving_after_s") or float("inf")
    return [
        figure("first_hour_commands_failed", failed, len(ran), target="0", met=failed == 0),
        figure(
            "first_hour_setup_and_first_demo_min",
            first.seconds / 60,
            1,
            target="< 6",
            met=first.seconds < 360,
            digits=1,
        ),
        figure("first_hour_first_motion_s", moving, 1, target="< 60", met=moving < 60, digits=1),
        figure("first_hour_six_task_demo_s", again.seconds, 1, digits=1),
        figure("first_hour_all_commands_min", sum(row.seconds for row in ran) / 60, len(ran), digits=1),
    ]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(FirstHourConfig)))
