"""Speed of the simulated table beside gym_hil, Meta-World and bare ``mj_step``.

    python -m engram.benchmarks.sim [--quick]

All contenders take turns in short blocks, so that whatever else the machine does hits them alike; a rate is the median
over blocks, its interval the quartiles. CPU rates count the process's own CPU time, all threads: they hold on a busy
machine, too. Prints one table; the last line is JSON, which also goes to benchmarks/results/sim.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import engram.sim  # noqa: F401 - registers the environments
from engram.benchmarks.report import save_report
from engram.core.provenance import machine
from engram.core.types import JointCommand
from engram.sim.world import MujocoWorld, WorldConfig

RESULTS = Path(__file__).resolve().parent / "results" / "sim.json"
RENDERED, STATE = "rendered, two 128 px cameras", "state only"
OURS, STEP, BARE, ENV = "engram/PickPlace-v0", "MujocoWorld.step", "bare mj_step", "engram/PickPlace-v0 with IK, safety"
RENDERED_TARGET, STATE_TARGET = 60.0, 0.90


@dataclass(frozen=True)
class SimBenchmark:
    """What is measured."""

    quick: bool = False
    """A fifth of the blocks."""
    seed: int = 0
    """Seed of the environments and actions."""
    blocks: int = 25
    """Turns of each contender."""
    block_s: float = 0.5
    """Length of a turn [s]; a turn ends with the first control step after it."""
    peers: bool = True
    """Also run gym_hil and Meta-World."""
    output: Path = RESULTS
    """Where the JSON goes."""


@dataclass
class Contender:
    """Something that runs control steps, and how long its blocks took."""

    name: str
    kind: str
    substeps: int
    run: Callable[[], None]  # one control step
    close: Callable[[], None]
    wall: list[float]  # s per control step, one entry a block
    cpu: list[float]

    def turn(self, block_s: float) -> None:
        """Run one block and note its time."""
        wall, cpu = time.perf_counter(), time.process_time()
        steps = 0
        while time.perf_counter() - wall < block_s:
            self.run()
            steps += 1
        self.wall.append((time.perf_counter() - wall) / steps)
        self.cpu.append((time.process_time() - cpu) / steps)


def gym_contender(name: str, kind: str, substeps: int, env: gym.Env, seed: int, render: bool = False) -> Contender:
    """Wrap an environment: random actions, a reset (not in the count of steps, but in the time) when it ends."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]

    def run() -> None:
        action = rng.uniform(low, high).astype(env.action_space.dtype)
        _, _, terminated, truncated, _ = env.step(action)
        if render:
            env.render()
        if terminated or truncated:
            env.reset()

    return Contender(name, kind, substeps, run, env.close, [], [])


def world_contenders(seed: int) -> list[Contender]:
    """Return :meth:`MujocoWorld.step` without cameras and bare ``mj_step``, each in its own copy of one scene."""
    worlds = [MujocoWorld(WorldConfig(profile="none")) for _ in range(2)]
    for world in worlds:
        world.reset("pick_place", seed)
    ours, bare = worlds
    substeps = round(ours.config.control_dt_s / ours.config.timestep_s)
    swing = 0.1 * np.sin(np.arange(200) * 2 * np.pi / 50)
    targets = [np.append(np.add(ours.robot.home, s), 0.4 + 4 * s) for s in swing]
    commands = [JointCommand(0, ours.robot.joint_names, t, ours.config.control_dt_s) for t in targets]
    actuators = np.array([bare.model.actuator(n).id for n in bare.robot.joint_names])
    clock = {"ours": 0, "bare": 0}

    def run_ours() -> None:
        ours.step(commands[clock["ours"] % len(commands)])
        clock["ours"] += 1

    def run_bare() -> None:
        bare.data.ctrl[actuators] = targets[clock["bare"] % len(targets)]
        mujoco.mj_step(bare.model, bare.data, nstep=substeps)
        clock["bare"] += 1

    return [
        Contender(STEP, STATE, substeps, run_ours, ours.close, [], []),
        Contender(BARE, STATE, substeps, run_bare, bare.close, [], []),
    ]


def make_gym_hil(seed: int) -> Contender:
    """gym_hil's PandaPickCube with its two cameras, as it comes."""
    import gym_hil  # noqa: F401 - registers its environments

    env = gym.make("gym_hil/PandaPickCubeBase-v0", image_obs=True, render_mode="rgb_array", disable_env_checker=True)
    inner = env.unwrapped
    substeps = round(inner.control_dt / inner.model.opt.timestep)  # type: ignore[attr-defined]
    return gym_contender("gym_hil PandaPickCube", RENDERED, substeps, env, seed)


def make_metaworld(seed: int) -> Contender:
    """Meta-World's pick-place with one camera, rendered once a step at its own size."""
    import metaworld  # noqa: F401 - registers its environments

    env = gym.make(
        "Meta-World/MT1",
        env_name="pick-place-v3",
        render_mode="rgb_array",
        camera_name="corner2",
        width=128,
        height=128,
        disable_env_checker=True,
    )
    substeps = int(env.unwrapped.frame_skip)  # type: ignore[attr-defined]
    return gym_contender("Meta-World pick-place, one camera", "rendered, one 128 px camera", substeps, env, seed, True)


def contenders(config: SimBenchmark) -> tuple[list[Contender], dict[str, str]]:
    """Make everyone who can be made; the second value says who could not, and why."""
    substeps = 40
    rendered = gym.make("engram/PickPlace-v0", disable_env_checker=True)
    found = [gym_contender(OURS, RENDERED, substeps, rendered, config.seed)]
    found += world_contenders(config.seed)
    state = gym.make("engram/PickPlace-v0", obs_type="state", disable_env_checker=True)
    found.append(gym_contender(ENV, STATE, substeps, state, config.seed))
    missing: dict[str, str] = {}
    if not config.peers:
        return found, missing
    for name, make in (("gym_hil", make_gym_hil), ("Meta-World", make_metaworld)):
        try:
            found.append(make(config.seed))
        except (ImportError, gym.error.Error, AttributeError, TypeError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing


def ratio(of: Contender, limit: Contender) -> tuple[float, float, float]:
    """Return the median and quartiles over blocks of how fast ``of`` is beside ``limit`` (CPU time)."""
    values = np.array(limit.cpu) / np.array(of.cpu)
    median, low, high = np.percentile(values, (50, 25, 75))
    return float(median), float(low), float(high)


def rate(seconds: list[float]) -> tuple[float, float, float]:
    """Return the median and quartiles of steps per second."""
    median, low, high = 1.0 / np.percentile(seconds, (50, 75, 25))
    return float(median), float(low), float(high)


def figures(found: dict[str, Contender]) -> list[dict[str, object]]:
    """Return what is claimed, each with interval, n and target."""
    wall, low, high = rate(found[OURS].wall)
    out: list[dict[str, object]] = [
        figure("rendered_steps_per_s", wall, (low, high), len(found[OURS].wall), RENDERED_TARGET)
    ]
    cpu, low, high = rate(found[OURS].cpu)
    out.append(figure("rendered_steps_per_cpu_s", cpu, (low, high), len(found[OURS].cpu), None))
    for name, contender in (("state_only_ratio", STEP), ("state_only_env_ratio", ENV)):
        median, low, high = ratio(found[contender], found[BARE])
        target = STATE_TARGET if contender == STEP else None
        out.append(figure(name, median, (low, high), len(found[contender].cpu), target))
    return out


def figure(name: str, value: float, interval: tuple[float, float], n: int, target: float | None) -> dict[str, object]:
    """One figure as ``engram prove`` prints it; the interval is the quartiles over n blocks."""
    met = None if target is None else value >= target
    return {
        "name": name,
        "value": round(value, 3),
        "interval": [round(v, 3) for v in interval],
        "n": n,
        "target": target,
        "met": met,
    }


def print_table(found: list[Contender], missing: dict[str, str]) -> None:
    """Print every contender with its rates and its share of the limit's."""
    table = Table(title="Simulation speed (median over blocks; 10 Hz control steps unless noted)")
    for column in ("contender", "what", "physics steps", "steps/s", "quartiles", "steps per CPU s", "beside"):
        table.add_column(column)
    by_name = {c.name: c for c in found}
    for c in found:
        median, low, high = rate(c.wall)
        limit = by_name[BARE] if c.kind == STATE else by_name[OURS]
        share = rate(c.cpu)[0] / rate(limit.cpu)[0] if limit is by_name[OURS] else ratio(c, limit)[0]
        table.add_row(
            c.name,
            c.kind,
            str(c.substeps),
            f"{median:.1f}",
            f"{low:.1f} - {high:.1f}",
            f"{rate(c.cpu)[0]:.1f}",
            f"{share:.3f} x {limit.name}",
        )
    for name, why in missing.items():
        table.add_row(name, "could not run", "", "", "", "", why)
    Console(width=160).print(table)


def main(config: SimBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(SimBenchmark)
    found, missing = contenders(config)
    for c in found:
        c.turn(0.05)  # caches, contexts
        c.wall.clear()
        c.cpu.clear()
    where = machine()  # with the load before the measurement
    for _ in range(max(5, config.blocks // 5) if config.quick else config.blocks):
        for c in found:
            c.turn(config.block_s)
    print_table(found, missing)
    for c in found:
        c.close()
    save_report(
        config.output,
        "sim",
        where,
        config,
        figures=figures({c.name: c for c in found}),
        rates={c.name: {"kind": c.kind, "wall": rate(c.wall), "cpu": rate(c.cpu)} for c in found},
        missing=missing,
        mujoco=mujoco.__version__,
    )


if __name__ == "__main__":
    main()
