"""Make the parts that parameters name: robot, world, detector, memory, policy. Every name may also be
``package.module:attribute``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engram.core.contracts import Detector, Kinematics, Memory, Policy
from engram.core.control import ControlConfig
from engram.core.errors import InvalidInputError, UnknownNameError, unknown_name
from engram.core.paths import at_home, is_on_hub
from engram.core.registry import resolve
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import CameraFrame, JointState, Observation, Pose

if TYPE_CHECKING:
    from engram.memory.graph.fusion import FusionConfig
    from engram.perception.zero_shot import ZeroShotDetectorConfig


def make_detector(spec: str, zero_shot: ZeroShotDetectorConfig | None = None) -> Detector:
    """Return the object detector called ``spec``: geometric, zero_shot, or ``package.module:attribute`` of your own.

    Raises:
        UnknownNameError: there is no such detector.
        InvalidInputError: it cannot be made, or ``zero_shot`` sets something for a detector that does not read it.
    """
    _check_read(spec, zero_shot)
    shipped = DETECTORS | {"zero_shot": partial(_zero_shot, zero_shot)}
    return resolve("detector", spec, shipped, Detector)  # type: ignore[type-abstract]


def _check_read(detector: str, zero_shot: ZeroShotDetectorConfig | None) -> None:
    """Raise InvalidInputError if ``zero_shot`` differs from its defaults and ``detector`` is another one."""
    if zero_shot is None or detector == "zero_shot":
        return
    changed = [f.name for f in fields(zero_shot) if getattr(zero_shot, f.name) != f.default]
    if changed:
        name, value = f"zero_shot.{changed[0]}", getattr(zero_shot, changed[0])
        raise InvalidInputError(f"{name}: {value!r}, but the detector is {detector!r}; only 'zero_shot' reads it")


@dataclass(frozen=True)
class Budget:
    """What the robot's memory may take of RAM and disk, and whether a commit waits for the disk."""

    ram_mb: float = 256.0
    disk_mb: float = 512.0
    fsync: bool = False


def make_memory(
    spec: str, folder: Path | None, places: Path | None = None, budget: Budget | None = None,
    frame: str = "base_link", map_name: str = "", fusion: FusionConfig | None = None,
) -> tuple[Memory, Callable[[], None]]:  # fmt: skip
    """Return the memory called ``spec``, kept in ``folder`` (None = in RAM only), and what closes it.

    "robot" has four stores, "graph" the scene graph alone; ``places`` is a YAML file of rooms and places; ``fusion``
    says how far the detector is believed.
    """
    if ":" in spec:
        return resolve("memory", spec, {}, Memory), lambda: None  # type: ignore[type-abstract]
    if spec not in ("robot", "graph"):
        raise unknown_name("memory", spec, ["robot", "graph", "package.module:attribute"])
    from engram.memory.graph.fusion import FusionConfig
    from engram.memory.graph.places import read_places, table
    from engram.memory.graph.tracker_config import TrackerConfig
    from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
    from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
    from engram.memory.storage.store import GraphStore, GraphStoreConfig

    budget = budget or Budget()
    known = read_places(places) if places is not None else (table(),) if frame == "base_link" else ()
    graph = GraphMemoryConfig(budget.ram_mb, map_name, TrackerConfig(frame=frame, fusion=fusion or FusionConfig()))
    store = (
        GraphStore(folder, GraphStoreConfig(fsync=budget.fsync, budget_mb=budget.disk_mb))
        if folder is not None
        else None
    )
    close = [] if store is None else [store.close]
    try:
        if spec == "graph":
            return GraphMemory(store, graph, _ready_encoder(), known), _all(close)
        config = RobotMemoryConfig(graph=graph).within(budget.ram_mb)
        memory = RobotMemory(store, config, _ready_encoder(), known)
        return memory, _all([memory.close, *close])
    except BaseException:
        _all(close)()
        raise


def _all(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def call() -> None:
        for one in calls:
            one()

    return call


def make_policy(
    spec: str,
    execute_steps: int = 0,
    ensemble: bool = False,
    real_time_delay: int = 0,
    adaptive_m: float | None = None,
    ablation: str = "",
    *,
    kinematics: Kinematics | None = None,
    robot: RobotConfig = PANDA_2F85,
    control_dt_s: float = ControlConfig.control_dt_s,
) -> Policy:
    """Return the policy called ``spec``: a checkpoint's name or folder, or a factory of your own.

    The other arguments are for checkpoints: how their chunks follow one another, what their memory is spoilt by (see
    the policy node's parameters), and which arm they drive at which rate; ``kinematics`` is by default that of
    ``robot``.
    """
    if ":" in spec:
        check_ablation(spec, ablation)
        return resolve("policy", spec, {}, Policy)  # type: ignore[type-abstract]
    from engram.policies import load_policy  # torch: only where a network is wanted
    from engram.policies.vla.chunking import follow

    policy = load_policy(
        spec,
        kinematics,
        robot,
        control=ControlConfig(control_dt_s=control_dt_s),
        execute_steps=execute_steps or None,
        real_time_delay=real_time_delay,
        ablation=ablation,
    )
    _warm_up(policy)
    return follow(policy, ensemble, adaptive_m, real_time_delay)


def shipped_policies() -> dict[str, Path]:
    """Return the folders of the checkpoints that Engram ships, by name; loads no network."""
    checkpoints = Path(str(resources.files("engram"))) / "policies" / "checkpoints"
    return {folder.name: folder for folder in sorted(checkpoints.iterdir()) if (folder / "config.json").is_file()}


def policy_folder(name: str) -> Path:
    """Return the folder of a shipped checkpoint or of your own; UnknownNameError lists the shipped ones."""
    shipped, folder = shipped_policies(), at_home(name)
    if name in shipped and not (folder / "config.json").is_file():  # a checkout has a folder called memory, too
        return shipped[name]
    if not (folder / "config.json").is_file():
        raise unknown_name("policy", name, [*shipped, "a folder with a config.json"])
    return folder.resolve()


def policy_files(name: str) -> Path:
    """Return the folder with the files of a policy: a shipped one, your own, or one on the hub, which is fetched."""
    if not is_on_hub(name):
        return policy_folder(name)
    from engram.policies.opening import files_of  # torch

    return files_of(name)


def check_policy_name(spec: str) -> None:
    """Raise UnknownNameError for a policy that cannot be one, without loading it: torch alone takes seconds."""
    shipped = shipped_policies()
    if ":" in spec:
        _check_module(spec)
    elif not (spec in shipped or is_on_hub(spec) or at_home(spec).is_dir()):
        raise unknown_name("policy", spec, [*shipped, "a folder", "owner/name on the hub", "package.module:attribute"])


def _check_module(spec: str) -> None:
    """Raise InvalidInputError when there is no such module, without importing it."""
    module = spec.partition(":")[0]
    try:
        found = find_spec(module)
    except (ImportError, ValueError):  # a parent package is missing, or it is no name of a module
        found = None
    if found is None:
        raise InvalidInputError(f"policy {spec!r}: there is no module {module!r}; expected package.module:attribute")


def policies_offered(first: str, named: str, accept: str) -> tuple[str, ...]:
    """Return the policies that may be chosen while a node runs.

    Args:
        first: the one that it began with.
        named: others that the launch named, separated by commas.
        accept: the node's parameter. With "any" (simulation) the shipped ones may be chosen, too.
    """
    own = [name.strip() for name in named.split(",") if name.strip()]
    return tuple(dict.fromkeys((*(shipped_policies() if accept == "any" else ()), first, *own)))


def check_policy_choice(spec: str, offered: Sequence[str]) -> None:
    """Raise UnknownNameError unless ``spec``, which came over the network, is among the policies ``offered``."""
    if spec not in offered:
        error = unknown_name("policy", spec, offered)
        raise UnknownNameError(f"{error}; name others at launch, in the policy node's parameter 'policies'")


def check_ablation(policy: str, ablation: str) -> None:
    """Raise an EngramError unless ``ablation`` can be applied to ``policy``; "" = no ablation."""
    if not ablation:
        return
    from engram.policies.vla.recurrent_state import ABLATIONS, NO_CONTEXT  # torch: only who asks for one

    if ablation not in (*ABLATIONS, NO_CONTEXT):
        raise unknown_name("ablation", ablation, (*ABLATIONS[1:], NO_CONTEXT))
    if ":" in policy:
        raise InvalidInputError(f"ablation {ablation!r}: for checkpoints only, not for {policy!r}")


def black_observation(policy: Any, stamp_ns: int) -> Observation:
    """Return black images of the size that ``policy`` was trained with, and the arm at home."""
    at_origin = Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
    frames = {
        name: CameraFrame(name, stamp_ns, np.zeros((height, width, 3), np.uint8), np.eye(3), at_origin)
        for name, (height, width) in policy.image_sizes.items()
    }
    robot = policy.robot
    home = np.append(robot.home, robot.gripper_open)
    return Observation(stamp_ns, frames, JointState(stamp_ns, robot.joint_names, home, np.zeros(len(home))))


def _warm_up(policy: Any) -> None:
    """Act once on black images: loading the text encoder and the first forward pass take seconds."""
    policy.reset("warm up")
    policy.observe(black_observation(policy, 0))
    policy.act()
    policy.begin_anew()


def make_learnable(spec: str, robot: RobotConfig = PANDA_2F85) -> Policy:
    """Return the policy called ``spec`` for a learner to start from: a checkpoint of ``robot``, or a factory of your
    own."""
    if ":" in spec:
        return resolve("policy", spec, {}, Policy)  # type: ignore[type-abstract]
    from engram.policies import load_policy  # torch: only where a network is wanted

    return load_policy(spec, robot=robot)


def _geometric() -> Detector:
    from engram.perception.geometric import GeometricDetector

    return GeometricDetector(encoder=_ready_encoder())


def _zero_shot(config: ZeroShotDetectorConfig | None = None) -> Detector:
    from engram.perception.zero_shot import ZeroShotDetector

    return ZeroShotDetector(config)


def _ready_encoder() -> Any:
    """Return the text encoder with its model loaded: seconds that belong into the start, not into the first frame."""
    from engram.perception.embedding import default_text_encoder

    encoder = default_text_encoder()
    encoder.encode(["object"])
    return encoder


DETECTORS: dict[str, Callable[[], Detector]] = {"geometric": _geometric, "zero_shot": _zero_shot}
"""Detectors that Engram ships, by name."""
