"""The launch reader: values by hand, and every kind of mistake named with what would have been valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from engram.app.launch_graph import find_launch_file, load_graph, package_share, parse_assignments
from engram.core.errors import InvalidInputError, UnknownNameError


def write(folder: Path, text: str, name: str = "test.launch.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


FULL = """
launch:
- arg: {name: robot, default: "", description: Namespace of the robot.}
- arg:
    name: speed
    default: "2.5"
    choice: [{value: "2.5"}, {value: "5.0"}]
- arg: {name: viewer, default: "true"}
- set_env: {name: PROFILE, value: "$(env PROFILE '$(dirname)/default.xml')"}
- node:
    pkg: engram
    exec: sim_node
    name: sim
    namespace: $(var robot)
    param:
    - from: $(dirname)/base.yaml
    - {name: rate, value: $(var speed)}
    - {name: names, value: [a, $(var robot)]}
    - {name: empty, value: ""}
    - {name: slow, value: $(not $(equals $(var speed) 5.0))}
    remap: [{from: command, to: safe/command}]
    env: [{name: A, value: "1"}]
    args: --fast --n 3
    ros_args: --log-level debug
    respawn: $(var viewer)
    respawn_delay: 1.5
    respawn_max_retries: 4
    on_exit: shutdown
- node: {pkg: engram, exec: viewer_node, name: viewer, if: $(var viewer)}
"""


def test_a_node_is_read_as_ros_would_run_it(tmp_path: Path) -> None:
    write(tmp_path, "/**: {ros__parameters: {}}", "base.yaml")
    graph = load_graph(write(tmp_path, FULL), {"robot": "r1"}, environ={})
    assert graph.environment == {"PROFILE": f"{tmp_path}/default.xml"}
    sim = graph.nodes[0]
    words = sim.ros_arguments(tmp_path)
    parameters = words.pop(words.index("-r", words.index("--params-file")) - 1)
    assert words == [
        *("--fast", "--n", "3", "--ros-args", "-r", "__node:=sim", "-r", "__ns:=/r1"),
        *("--params-file", f"{tmp_path}/base.yaml", "--params-file", "-r", "command:=safe/command"),
        *("--log-level", "debug"),
    ]
    assert yaml.safe_load(Path(parameters).read_text()) == {
        "/r1/sim": {"ros__parameters": {"rate": 2.5, "names": ["a", "r1"], "empty": "", "slow": True}}
    }
    assert (sim.respawn, sim.respawn_delay_s, sim.respawn_max_retries, sim.required) == (True, 1.5, 4, True)
    assert sim.environment == {"A": "1"}
    assert [n.name for n in graph.nodes] == ["sim", "viewer"]


def test_conditions_and_environment_defaults(tmp_path: Path) -> None:
    write(tmp_path, "", "base.yaml")
    graph = load_graph(write(tmp_path, FULL), {"viewer": "0"}, environ={"PROFILE": "mine.xml"})
    assert [n.name for n in graph.nodes] == ["sim"]
    assert graph.environment == {"PROFILE": "mine.xml"}
    assert not graph.nodes[0].respawn


def test_include_passes_arguments_and_keeps_them_inside(tmp_path: Path) -> None:
    inner = """
launch:
- arg: {name: name, default: plain}
- arg: {name: level, default: info}
- node: {pkg: engram, exec: sim_node, name: $(var name), args: $(var level)}
"""
    write(tmp_path, inner, "inner.launch.yaml")
    outer = """
launch:
- include:
    file: $(dirname)/inner.launch.yaml
    arg: [{name: name, value: first}]
- include: {file: $(dirname)/inner.launch.yaml}
"""
    graph = load_graph(write(tmp_path, outer), {"level": "debug"})
    assert [(n.name, n.arguments) for n in graph.nodes] == [("first", ("debug",)), ("plain", ("debug",))]


def test_a_value_is_set_where_its_condition_holds(tmp_path: Path) -> None:
    text = """
launch:
- arg: {name: of, default: none}
- let: {name: prefix, value: ""}
- let: {name: prefix, value: "/$(var of)/", if: $(not-equals $(var of) none)}
- node: {pkg: engram, exec: sim_node, remap: [{from: a, to: $(var prefix)a}]}
"""
    path = write(tmp_path, text)
    assert load_graph(path).nodes[0].remaps == (("a", "a"),)
    graph = load_graph(path, {"of": "r1"})
    assert graph.nodes[0].remaps == (("a", "/r1/a"),) and "prefix" not in graph.values
    with pytest.raises(UnknownNameError, match="prefix"):
        load_graph(path, {"prefix": "mine"})


@pytest.mark.parametrize("file", ["sim", "robot"])
def test_a_robot_learns_with_anothers_learner(file: str) -> None:
    """The topics are those that its policy node and the page share with the learner of r1."""
    nodes = {
        node.name: node for node in load_graph(find_launch_file(file), {"namespace": "r2", "learner_of": "r1"}).nodes
    }
    assert not {"learner_node", "gate_node"} & set(nodes)
    shared = ("experience", "experience/ack", "policy/manifest", "policy/weights")
    assert nodes["policy_node"].remaps[1:] == tuple((topic, f"/r1/{topic}") for topic in shared)
    assert dict(nodes["viewer_node"].remaps)["policy/gate"] == "/r1/policy/gate"
    alone = {node.name: node for node in load_graph(find_launch_file(file), {"namespace": "r1"}).nodes}
    assert {"learner_node", "gate_node"} <= set(alone)
    assert all(there == here for here, there in alone["policy_node"].remaps)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("launch: [{nod: {}}]", "unknown test.launch.yaml: entry 0: action 'nod'; did you mean 'node'"),
        ("launch: [{node: {pkg: engram, exec: sim_node, parm: []}}]", "key 'parm'; did you mean 'param'"),
        ("lunch: []", "key 'lunch'; did you mean 'launch'"),
        ("launch: {}", "expected 'launch:' with a list"),
        ("launch: [{node: {pkg: engram}}]", "'exec' is missing"),
        ("launch: [{node: {pkg: engram, exec: $(var nme)}}]", "launch argument 'nme'"),
        ("launch: [{node: {pkg: engram, exec: $(eval 1+1)}}]", "expression 'eval'"),
        ("launch: [{node: {pkg: engram, exec: $(env HOME_X)}}]", "HOME_X is not set"),
        ("launch: [{node: {pkg: engram, exec: '$(var'}}]", "no closing bracket"),
        ("launch: [{node: {pkg: engram, exec: a, if: maybe}}]", "'maybe' is no truth value"),
        ("launch: [{node: {pkg: engram, exec: a, respawn_delay: soon}}]", "'soon' is no number"),
        ("launch: [{node: {pkg: engram, exec: a, on_exit: restart}}]", "on_exit 'restart'"),
        ("launch: [{node: {pkg: engram, exec: a, param: [{name: x}]}}]", "expected name and value, or from"),
        ("launch: [{node: {pkg: engram, exec: a, param: [{from: no.yaml}]}}]", "no.yaml does not exist"),
        ("launch: [{node: {pkg: engram, exec: a}}, {node: {pkg: engram, exec: a}}]", "two nodes are named"),
        ("launch: [{arg: {name: x}}]", "give x:="),
        ("launch: [{include: {file: $(dirname)/test.launch.yaml}}]", "includes itself"),
        ("launch: [{include: {file: other.launch.py}}]", "is no .launch.yaml"),
        ("launch: [{set_env: {name: A, value: $(find-pkg-share nopkg)}}]", "package 'nopkg'"),
        ("launch: [{node: {pkg: engram, exec: a}}, {set_env: {name: A, value: b}}]", "before the first node"),
        ("launch: [", "not YAML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises((UnknownNameError, InvalidInputError)) as caught:
        load_graph(write(tmp_path, text), environ={})
    assert words in str(caught.value)


def test_unknown_arguments_and_choices_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "", "base.yaml")
    path = write(tmp_path, FULL)
    with pytest.raises(UnknownNameError, match="'spede'; did you mean 'speed'"):
        load_graph(path, {"spede": "5.0"})
    with pytest.raises(UnknownNameError, match=r"speed: '3'; .*valid: 2.5, 5.0"):
        load_graph(path, {"speed": "3"})
    with pytest.raises(InvalidInputError, match="expected name:=value"):
        parse_assignments(["speed=5.0"])
    with pytest.raises(UnknownNameError, match=r"valid: .*sim"):
        find_launch_file("simm")


def test_packages_are_found_in_wheels_and_in_ourselves() -> None:
    assert (package_share("engram") / "config").is_dir()
    assert (package_share("std_msgs") / "package.xml").is_file()
