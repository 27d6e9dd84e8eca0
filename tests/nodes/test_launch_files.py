"""The shipped launch files: every node and parameter file exists, and ROS's own ``launch`` reads them as we do.

ROS's ``launch`` is in no package registry. Where it cannot be imported, the ``*.launch.py`` files are compiled and the
comparison is skipped, with that reason; on a ROS installation it runs.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from engram.app.launch_graph import LaunchGraph, NodeSpec, find_launch_file, load_graph, package_share
from engram.app.node_reference import NODES, parameters
from engram.app.process import EXECUTABLES, node_command
from engram.core.errors import EXIT_MISCONFIGURED, UnknownNameError
from engram.nodes.base import EngramNode
from engram.perception.zero_shot import ZeroShotDetectorConfig
from engram.runtime.parameters.gate import GateNodeConfig
from engram.runtime.parameters.learner import LearnerNodeConfig
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig
from engram.runtime.parameters.memory import MemoryNodeConfig
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram.runtime.parameters.safety import SafetyNodeConfig

ROS_LAUNCH = all(find_spec(name) for name in ("launch", "launch_ros", "launch_yaml"))
LOOP = ["perception_node", "memory_node", "safety_node", "policy_node", "lifecycle_manager"]
BESIDE = ["learner_node", "gate_node", "viewer_node"]
RECORDER = """#!{python}
import json, os, sys
row = {{"argv": sys.argv[1:], "profile": os.environ.get("FASTDDS_DEFAULT_PROFILES_FILE")}}
files = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--params-file"]
row["files"] = [open(file).read() for file in files]
with open({out!r} + "/" + os.path.basename(sys.argv[0]) + ".json", "w") as out:
    json.dump(row, out)
"""
RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource
source = AnyLaunchDescriptionSource(sys.argv[1])
arguments = [tuple(word.split(":=", 1)) for word in sys.argv[2:]]
service = LaunchService()
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)]))
raise SystemExit(service.run())
"""


def graph(name: str, **values: str) -> LaunchGraph:
    return load_graph(find_launch_file(name), values)


@pytest.mark.parametrize("name", ["sim", "robot", "memory"])
def test_the_parameter_files_set_nothing_that_a_launch_argument_overrules(name: str) -> None:
    """Whoever edited such a line would wait for its effect."""
    arguments = {
        argument["arg"]["name"] for file in (name, "loop") for argument in launch_file(file) if "arg" in argument
    }
    for section in yaml.safe_load((package_share("engram") / "config" / f"{name}.yaml").read_text()).values():
        values = {key for key, value in section["ros__parameters"].items() if not isinstance(value, dict)}
        assert not arguments & values


def launch_file(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((package_share("engram") / "launch" / f"{name}.launch.yaml").read_text())["launch"]


@pytest.mark.parametrize(("name", "body"), [("sim", "sim_node"), ("robot", "robot_node")])
def test_the_whole_node_set_is_started(name: str, body: str, tmp_path: Path) -> None:
    found = graph(name)
    assert [n.executable for n in found.nodes] == [body, *LOOP, *BESIDE]
    for node in found.nodes:
        assert node.executable in EXECUTABLES
        assert node_command(node, tmp_path)[1:3] == ["-m", f"engram.nodes.{node.executable}"]
        assert node.respawn
    manager = next(n for n in found.nodes if n.name == "lifecycle_manager")
    assert dict(manager.parameters)["node_names"] == [body, *LOOP[:-1]]
    assert dict(manager.parameters)["optional_names"] == ["extra_node"]
    assert Path(found.environment["FASTDDS_DEFAULT_PROFILES_FILE"]).is_file()


def test_the_memory_alone_starts_nothing_that_moves_anything_and_hears_a_camera_by_its_own_names() -> None:
    values = {"camera": "head", "depth_topic": "/d435/depth", "namespace": "r1", "map": "house-3", "port": "9000"}
    nodes = {n.name: n for n in graph("memory", places="rooms.yaml", enclaves="/mine", **values).nodes}
    assert [*nodes] == ["perception_node", "memory_node", "lifecycle_manager", "viewer_node"]
    told = {name: dict(n.parameters) for name, n in nodes.items()}
    assert told["lifecycle_manager"]["node_names"] == ["perception_node", "memory_node"]
    assert (told["perception_node"]["camera"], told["perception_node"]["autostart"]) == ("head", False)
    memory = {key: told["memory_node"][key] for key in ("robot", "frame", "map", "places", "autostart")}
    assert memory == {"robot": "none", "frame": "map", "map": "house-3", "places": "rooms.yaml", "autostart": False}
    assert (told["viewer_node"]["robot"], told["viewer_node"]["port"]) == ("none", 9000)
    assert told["viewer_node"]["writers"] == ["memory/graph=memory_node"]
    heard = dict(nodes["perception_node"].remaps)
    assert heard["camera/head/depth/image_raw"] == "/d435/depth"
    assert heard["camera/head/depth/image_raw/compressedDepth"] == "/d435/depth/compressedDepth"
    assert heard["camera/head/color/image_raw"] == "camera/head/color/image_raw"
    far = {n.name: dict(n.parameters) for n in graph("memory", image_transport="compressed").nodes}
    assert (told["perception_node"]["image_transport"], far["perception_node"]["image_transport"]) == (
        "raw",
        "compressed",
    )
    assert {n.namespace for n in nodes.values()} == {"r1"} and all(n.respawn for n in nodes.values())
    assert all(n.ros_args[-1] == f"/mine/{name}" for name, n in nodes.items())
    assert [n.name for n in graph("memory", viewer="false").nodes] == [*nodes][:-1]
    arm = {n.name: dict(n.parameters) for n in graph("memory", robot="my.file:ARM", frame="base_link").nodes}
    assert (arm["memory_node"]["robot"], arm["memory_node"]["frame"]) == ("my.file:ARM", "base_link")
    assert arm["viewer_node"]["robot"] == "none"  # the page drives no robot of others


FAR = ["link_node", "learner_node", "gate_node", "viewer_node"]


@pytest.mark.parametrize(("name", "body"), [("sim", "sim_node"), ("robot", "robot_node")])
def test_two_machines_run_each_node_once_and_name_the_others_link_node_as_peer(name: str, body: str) -> None:
    near = {n.name: n for n in graph(name, link="true", namespace="r1").nodes}
    far = {n.name: n for n in graph("far", body=name, namespace="r1").nodes}
    assert [*near] == [body, *LOOP, "link_node"]
    assert [n.executable for n in far.values()] == FAR
    assert {n.namespace for n in (*near.values(), *far.values())} == {"r1"}
    near_link, far_link = dict(near["link_node"].parameters), dict(far["far_link_node"].parameters)
    assert (near_link["peers"], far_link["peers"]) == (["far_link_node"], ["link_node"])
    assert (near_link.get("compress", True), far_link["compress"]) == (True, False)
    assert dict(far["viewer_node"].parameters)["image_transport"] == "compressed"


@pytest.mark.parametrize("name", ["sim", "robot"])
def test_learner_and_page_have_the_same_parameters_on_either_machine(name: str) -> None:
    here = {n.name: dict(n.parameters) for n in graph(name).nodes}
    there = {n.name: dict(n.parameters) for n in graph("far", body=name).nodes}
    assert here["learner_node"] == there["learner_node"]
    assert here["gate_node"] == there["gate_node"]
    assert here["viewer_node"] | {"image_transport": "compressed"} == there["viewer_node"]


@pytest.mark.parametrize(("name", "body"), [("sim", "sim_node"), ("robot", "robot_node")])
def test_raw_images_are_sent_whole_and_what_travels_in_pieces(name: str, body: str) -> None:
    found = graph(name, link="true")
    profiles = {n.name: {**found.environment, **n.environment}["FASTDDS_DEFAULT_PROFILES_FILE"] for n in found.nodes}
    assert Path(profiles.pop(body)).name == "fastdds.xml"
    assert {Path(p).name for p in profiles.values()} == {"fastdds_link.xml"}
    assert Path(graph("far").environment["FASTDDS_DEFAULT_PROFILES_FILE"]).name == "fastdds_link.xml"


def test_every_documented_argument_arrives_where_it_belongs() -> None:
    values = {"namespace": "r1", "use_sim_time": "false", "autostart": "false", "use_respawn": "false"}
    values |= {"lockstep": "false", "profile": "photo", "task": "reach", "seed": "7", "policy": "mine", "port": "9000"}
    chunks = {"execute_steps": "8", "ensemble": "true", "adaptive_m": "0.02", "real_time_delay": "3"}
    found = graph("sim", log_level="debug", learner="false", host="0.0.0.0", **values, **chunks)
    nodes = {n.name: (n, dict(p for p in n.parameters if p[0])) for n in found.nodes}
    assert "learner_node" not in nodes
    assert "gate_node" not in nodes
    assert {n.namespace for n, _ in nodes.values()} == {"r1"}
    assert not any(n.respawn for n, _ in nodes.values())
    assert all(n.ros_args == ("--log-level", "debug", "--enclave", f"/engram/{n.name}") for n, _ in nodes.values())
    sim = nodes["sim_node"][1]
    assert sim == {
        "robot_id": "", "use_sim_time": False, "autostart": False, "lockstep": False,
        "robot": "panda_2f85", "world": "tabletop", "task": "reach", "tasks": "reach", "seed": 7,
        "writers": ["command=safety_node", "safety/stopped=safety_node"],
        "world_config.profile": "photo",
    }  # fmt: skip
    policy = nodes["policy_node"][1]
    assert policy["policy"] == "mine"
    assert [policy[name] for name in chunks] == [8, True, 0.02, 3]
    assert nodes["memory_node"][1]["use_sim_time"] is False
    assert (nodes["viewer_node"][1]["port"], nodes["viewer_node"][1]["host"]) == (9000, "0.0.0.0")
    assert nodes["lifecycle_manager"][1]["autostart"] is False
    assert "viewer_node" not in {n.name for n in graph("sim", viewer="false").nodes}


def test_a_second_simulation_has_a_clock_of_its_own_in_every_node() -> None:
    found = graph("sim", namespace="r2", clock="/r2/clock", rviz="true")
    assert all(("/clock", "/r2/clock") in node.remaps for node in found.nodes)
    rviz = found.nodes[-1]
    assert (rviz.package, rviz.namespace, dict(rviz.remaps)["/tf"]) == ("rviz2", "r2", "tf")
    assert Path(rviz.arguments[1]).is_file()
    assert not [node for node in graph("sim").nodes if node.package == "rviz2"]


@pytest.mark.parametrize("name", ["sim", "robot", "memory"])
def test_the_words_to_look_for_arrive_at_the_detector(name: str) -> None:
    def zero_shot(**values: str) -> tuple[Any, Any]:
        perception = next(n for n in graph(name, **values).nodes if n.name == "perception_node")
        parameters = dict(perception.parameters)
        return parameters["zero_shot.model"], parameters["zero_shot.prompts"]

    assert zero_shot(detector_prompts="[red cup, bowl]", detector_model="mine") == ("mine", ["red cup", "bowl"])
    own = ZeroShotDetectorConfig()
    assert zero_shot() == (own.model, list(own.prompts))  # the node refuses others where geometric looks


@pytest.mark.parametrize("name", ["sim", "robot"])
def test_the_safety_node_hears_of_the_memory_s_obstacles_where_it_is_asked_for(name: str) -> None:
    def told(**values: str) -> Any:
        safety = next(n for n in graph(name, **values).nodes if n.name == "safety_node")
        return dict(safety.parameters)["memory_obstacles"]

    assert (told(), told(memory_obstacles="true")) == (False, True)


@pytest.mark.parametrize("name", ["sim", "robot", "far", "memory"])
def test_every_parameter_of_the_launch_files_is_one_of_its_node(name: str) -> None:
    """A node refuses what it does not read; one of a user's own has what every node has."""
    classes: dict[str, Any] = {cls.__module__.rpartition(".")[2]: cls for cls in NODES} | {"extra_node": EngramNode}
    own = {} if name in ("far", "memory") else {"extra_node": "my.file:Node", "link": "true"}
    own |= {"driver": "twin"} if name == "robot" else {}
    for node in graph(name, **own).nodes:
        cls = classes.get(node.executable)
        known = {row[0] for row in parameters(cls.config_class if cls else LifecycleManagerConfig)}
        known |= (
            {row[0] for prefix, section in cls.sections.items() for row in parameters(section, prefix)}
            if cls
            else set()
        )
        known |= {"use_sim_time", ""}
        assert {parameter for parameter, _ in node.parameters} <= known, node.name


@pytest.mark.parametrize("name", ["sim", "robot"])
def test_parts_of_ones_own_arrive_where_they_belong(name: str, tmp_path: Path) -> None:
    found = graph(name, detector="my.file:Finder", extra_node="my.file:Node", namespace="r1")
    nodes = {n.name: (n, dict(p for p in n.parameters if p[0])) for n in found.nodes}
    assert nodes["perception_node"][1]["detector"] == "my.file:Finder"
    extra, parameters = nodes["extra_node"]
    assert node_command(extra, tmp_path)[1:5] == ["-m", "engram.nodes.extra_node", "my.file:Node", "--ros-args"]
    assert (extra.full_name, parameters["autostart"]) == ("/r1/extra_node", False)
    if name == "sim":
        nodes = {n.name: dict(n.parameters) for n in graph(name, world="my.file:World", tasks="my.file:Task").nodes}
        assert nodes["sim_node"]["world"] == "my.file:World"
        assert {nodes[n]["tasks"] for n in ("viewer_node", "policy_node")} == {"my.file:Task"}


def test_a_simulation_keeps_every_folder_apart_from_that_of_its_robot() -> None:
    """What a simulation found out of its robot must not drive a real one."""
    simulated = yaml.safe_load((package_share("engram") / "config" / "sim.yaml").read_text())
    configs = (PolicyNodeConfig, MemoryNodeConfig, SafetyNodeConfig, LearnerNodeConfig, GateNodeConfig)
    for config in configs:
        node = config.__name__.removesuffix("NodeConfig").lower() + "_node"
        told = simulated[f"/**/{node}"]["ros__parameters"]
        for field in fields(config):
            if isinstance(field.default, str) and "{robot_id}" in field.default and field.name != "trusted_key":
                wanted = field.default.replace("{robot_id}", "sim-{robot_id}")
                assert told.get(field.name) == wanted, f"{node}.{field.name}"


@pytest.mark.parametrize(("name", "body"), [("sim", "sim_node"), ("robot", "robot_node")])
def test_the_robot_arrives_in_every_node_that_reads_one(name: str, body: str) -> None:
    nodes = {n.name: dict(n.parameters) for n in graph(name, robot="my.file:ARM").nodes}
    reading = {body, "perception_node", "memory_node", "safety_node", "policy_node", *BESIDE}
    assert {node for node, parameters in nodes.items() if parameters.get("robot") == "my.file:ARM"} == reading
    assert dict(next(n for n in graph(name).nodes if n.name == body).parameters)["robot"] == "panda_2f85"


def test_every_argument_is_explained() -> None:
    for name in ("sim", "robot", "far", "memory"):
        for argument in graph(name).arguments:
            assert argument.description.endswith((".", "!")), argument


@pytest.mark.parametrize("name", ["sim", "robot", "memory"])
def test_sections_of_the_parameter_files_name_nodes_that_are_started(name: str) -> None:
    sections = yaml.safe_load((package_share("engram") / "config" / f"{name}.yaml").read_text())
    names = {n.name for n in graph(name).nodes}
    assert {section.removeprefix("/**/") for section in sections if section != "/**"} <= names


@pytest.mark.parametrize(("name", "least"), [("sim", 3), ("robot", 3), ("memory", 1)])
def test_every_folder_belongs_to_one_robot(name: str, least: int) -> None:
    sections = yaml.safe_load((package_share("engram") / "config" / f"{name}.yaml").read_text())
    given = [value for section in sections.values() for value in section["ros__parameters"].values()]
    folders = [value for value in given if isinstance(value, str) and value.startswith("~")]
    assert len(folders) >= least
    assert all("{robot_id}" in folder for folder in folders)


@pytest.mark.parametrize("name", ["sim", "robot", "far", "memory"])
def test_python_launch_files_compile(name: str) -> None:
    path = package_share("engram") / "launch" / f"{name}.launch.py"
    for file in (path, path.with_name("beside.py")):
        compile(file.read_text(), str(file), "exec")
    assert path.with_suffix(".yaml").is_file()


def ros_prefix(tmp_path: Path) -> Path:
    """An ament prefix whose executables write down how they were started."""
    prefix, share = tmp_path / "prefix", tmp_path / "prefix/share"
    (prefix / "lib/engram").mkdir(parents=True)
    (share / "ament_index/resource_index/packages").mkdir(parents=True)
    (share / "ament_index/resource_index/packages/engram").touch()
    (share / "engram").mkdir()
    for folder in ("launch", "config"):
        (share / "engram" / folder).symlink_to((package_share("engram") / folder).resolve())
    for name in EXECUTABLES:
        path = prefix / "lib/engram" / name
        path.write_text(RECORDER.format(python=sys.executable, out=str(tmp_path)))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return prefix


@pytest.mark.skipif(not ROS_LAUNCH, reason="ROS's own launch is not importable here (it is in no package registry)")
@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("sim.launch.py", {"seed": "3", "learner_of": "none"}),
        ("sim.launch.yaml", {"seed": "3", "learner_of": "none"}),
        ("sim.launch.yaml", {"seed": "3", "learner_of": "r2"}),
        ("robot.launch.py", {"robot": "my.file:ARM"}),
        ("robot.launch.py", {"driver": "twin"}),
        ("far.launch.py", {"body": "robot"}),
        ("memory.launch.py", {"camera": "head", "depth_topic": "/d435/depth", "map": "house-3"}),
    ],
)
def test_ros_launch_starts_the_same_processes(tmp_path: Path, file: str, values: dict[str, str]) -> None:
    prefix = ros_prefix(tmp_path)
    own = {"use_respawn": "false", "viewer": "false", **values}
    words = ["namespace:=r1", *(f"{name}:={value}" for name, value in own.items())]
    prefixes = os.pathsep.join([str(prefix), os.environ.get("AMENT_PREFIX_PATH", "")]).strip(os.pathsep)
    environment = {**os.environ, "AMENT_PREFIX_PATH": prefixes, "ROS_LOG_DIR": str(tmp_path / "log")}
    command = [sys.executable, "-c", RUN, str(prefix / "share/engram/launch" / file), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    ours = graph(file.partition(".")[0], namespace="r1", **own)
    assert {p.stem for p in tmp_path.glob("*.json")} == {n.executable for n in ours.nodes}
    for node in ours.nodes:
        theirs: dict[str, Any] = json.loads((tmp_path / f"{node.executable}.json").read_text())
        profile = Path({**ours.environment, **node.environment}["FASTDDS_DEFAULT_PROFILES_FILE"]).name
        assert theirs["profile"] == str(prefix / "share/engram/config" / profile)
        ros = theirs["argv"]
        assert [w for w in ros if w.startswith("__")] == [f"__node:={node.name}", "__ns:=/r1"]
        assert ros[ros.index("--log-level") + 1] == "info"
        remaps = {w.partition(":=")[0]: w.partition(":=")[2] for w in ros if ":=" in w and not w.startswith("__")}
        assert remaps == dict(node.remaps)
        wanted = {f"/r1/{node.name}": dict(p for p in node.parameters if p[0])}
        got: dict[str, dict[str, Any]] = {}
        for text in theirs["files"]:
            for section, body in yaml.safe_load(text).items():
                if section == f"/r1/{node.name}":
                    got.setdefault(section, {}).update(body["ros__parameters"])
        assert got == wanted


@pytest.mark.skipif(not ROS_LAUNCH, reason="ROS's own launch is not importable here (it is in no package registry)")
def test_ros_launch_ends_when_a_node_cannot_work_as_it_is_configured(tmp_path: Path) -> None:
    prefix = ros_prefix(tmp_path)
    for name in EXECUTABLES:
        work = f"raise SystemExit({EXIT_MISCONFIGURED})" if name == "policy_node" else "import time; time.sleep(300)"
        (prefix / "lib/engram" / name).write_text(f"#!{sys.executable}\n{work}\n")
    prefixes = os.pathsep.join([str(prefix), os.environ.get("AMENT_PREFIX_PATH", "")]).strip(os.pathsep)
    environment = {**os.environ, "AMENT_PREFIX_PATH": prefixes, "ROS_LOG_DIR": str(tmp_path / "log")}
    command = [sys.executable, "-c", RUN, str(prefix / "share/engram/launch/sim.launch.py"), "viewer:=false"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)  # not for ever
    said = done.stdout + done.stderr
    assert len(re.findall(r"\[policy_node-\d+\]: process started", said)) == 1, said  # not once more
    assert re.search(r"\[sim_node-\d+\]: sending signal 'SIGINT'", said), said  # the others are ended


@pytest.mark.parametrize("name", ["sim", "robot", "memory"])
def test_nodes_are_found_on_this_machine_alone_unless_it_is_said_otherwise(name: str) -> None:
    def discovery(environ: dict[str, str], **values: str) -> str:
        return load_graph(find_launch_file(name), values, environ).environment["ROS_AUTOMATIC_DISCOVERY_RANGE"]

    assert discovery({}) == "LOCALHOST"
    assert discovery({}, discovery="SUBNET") == "SUBNET"
    assert discovery({"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}) == "SUBNET"
    with pytest.raises(UnknownNameError, match="unknown value of launch argument discovery: 'EVERYWHERE'"):
        discovery({}, discovery="EVERYWHERE")


def test_a_twin_is_reached_by_the_topics_of_the_hardware_alone_and_keeps_folders_of_its_own() -> None:
    def rehearsal(**values: str) -> dict[str, NodeSpec]:
        return {n.name: n for n in graph("robot", driver="twin", **values).nodes}

    hardware = {n.name for n in graph("robot").nodes}
    nodes = rehearsal(twin="twin:gap=late")
    assert nodes.keys() - hardware == {"twin"}
    told = dict(p for p in nodes["twin"].parameters if p[0])
    assert (told["world"], told["writers"], told["lockstep"]) == ("twin:gap=late", ["command=robot_node"], False)
    hidden = {"task/status", "task/step", "sim/reset", "safety/stopped"}
    hardware_topics = {
        "joint_states": "hardware/joint_states",
        "command": "joint_trajectory_controller/joint_trajectory",
    }
    remaps = dict(nodes["twin"].remaps)
    assert {name: remaps[name] for name in hardware_topics} == hardware_topics
    assert all(remaps[name].startswith("twin/") for name in hidden)
    for name in hardware - {"lifecycle_manager"}:
        parameters = dict(p for p in nodes[name].parameters if p[0])
        assert (parameters["use_sim_time"], parameters["robot_id"]) == (True, "twin/")
    named = dict(rehearsal(namespace="r1")["memory_node"].parameters)
    assert named["robot_id"] == "twin/r1"
    assert dict(rehearsal(robot_id="mine")["memory_node"].parameters)["robot_id"] == "mine"


def test_what_moves_a_robot_comes_from_the_nodes_of_the_launch_and_no_weights_without_a_key() -> None:
    nodes = {n.name: dict(p for p in n.parameters if p[0]) for n in graph("robot").nodes}
    assert nodes["robot_node"]["writers"] == ["command=safety_node", "safety/stopped=safety_node"]
    takeover = "intervention=teleoperation,viewer_node"
    others = ["policy/action_chunk=policy_node", "memory/graph=memory_node", takeover]
    assert nodes["safety_node"]["writers"] == ["joint_states=robot_node", "task/status=policy_node", *others]
    assert nodes["policy_node"]["accept"] == "none"
    told = ["joint_states=robot_node", "task/status=policy_node", "task/step=policy_node"]
    assert nodes["memory_node"]["writers"] == [*told, "policy/action_chunk=policy_node"]
    safety = ["safety/stopped=safety_node", "safety/executed=safety_node"]
    memory = ["memory/context=memory_node", "verdict=memory_node"]
    learner = [f"{topic}=learner_node" for topic in ("experience/ack", "policy/manifest", "policy/weights")]
    assert nodes["policy_node"]["writers"] == [*told, *safety, *memory, *learner]
    assert nodes["learner_node"]["writers"] == ["experience=/*/policy_node"]
    assert nodes["gate_node"]["writers"] == ["policy/candidate=learner_node", "policy/manifest=learner_node"]
    seen = [*safety, "verdict=memory_node", "memory/graph=memory_node"]
    assert nodes["viewer_node"]["writers"] == ["joint_states=robot_node", *seen]
    simulated = {n.name: dict(p for p in n.parameters if p[0]) for n in graph("sim").nodes}
    assert simulated["safety_node"]["writers"] == ["joint_states=sim_node", "task/status=sim_node", *others]
    second = {n.name: dict(p for p in n.parameters if p[0]) for n in graph("robot", learner_of="r1").nodes}
    assert second["policy_node"]["writers"][-3:] == [row.replace("=", "=/r1/") for row in learner]
    far = {n.name: dict(p for p in n.parameters if p[0]) for n in graph("far").nodes}
    assert all(far[name]["writers"] == nodes[name]["writers"] for name in ("learner_node", "gate_node"))
    own = {n.name: dict(p for p in n.parameters if p[0]) for n in graph("robot", takeover="my_pad").nodes}
    assert own["safety_node"]["writers"][-1] == "intervention=my_pad"
