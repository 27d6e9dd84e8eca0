"""Dataclasses as ROS parameters, in a node of this process."""

from dataclasses import dataclass, field

import pytest
import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter

from engram.app.node_reference import NODES, parameters
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.nodes.params import check_unknown, declare
from engram.runtime.parameters import NodeConfig, descriptions, param
from engram.runtime.parameters.link import LinkNodeConfig
from engram.runtime.parameters.memory import MemoryNodeConfig


@dataclass(frozen=True)
class Inner:
    """A section."""

    deep: int = 3
    """How deep."""


@dataclass(frozen=True)
class Config:
    """All kinds of fields."""

    speed: float = param(0.5, 0.0, 1.0)
    """Speed [m/s]."""
    mode: str = param("slow", choices=("slow", "fast"))
    """What to do."""
    names: tuple[str, ...] = ("a", "b")
    """Some names."""
    inner: Inner = field(default_factory=Inner)
    """A section of its own."""
    help: str = param("on request", choices=("off", "on request"))
    """Whether to help."""


@pytest.fixture
def make_node():
    context = rclpy.Context()
    rclpy.init(context=context)
    nodes = []

    def make(**values):
        overrides = [Parameter(name.replace("__", "."), value=value) for name, value in values.items()]
        nodes.append(Node("n", context=context, parameter_overrides=overrides))
        return nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_the_docstring_under_a_field_is_its_description():
    assert descriptions(Config)["speed"] == "Speed [m/s]."


def test_a_parameter_is_declared_where_it_is_read_and_an_error_elsewhere(make_node):
    declaring = lambda name: {cls.__name__ for cls in NODES if name in {row[0] for row in parameters(cls.config_class)}}  # noqa: E731
    assert declaring("lockstep") == {"SimNode", "PerceptionNode", "MemoryNode", "PolicyNode", "SafetyNode"}
    assert declaring("image_transport") == {"PerceptionNode", "PolicyNode", "ViewerNode"}
    for config, name in ((LinkNodeConfig, "lockstep"), (NodeConfig, "lockstep"), (MemoryNodeConfig, "image_transport")):
        node = make_node(**{name: True})
        declare(node, config)
        with pytest.raises(UnknownNameError, match=f"unknown parameter of n '{name}'"):
            check_unknown(node)


def test_defaults_come_back_as_they_are(make_node):
    node = make_node()
    assert declare(node, Config) == Config()
    described = node.describe_parameter("speed")
    assert described.description == "Speed [m/s]."
    assert (described.floating_point_range[0].from_value, described.floating_point_range[0].to_value) == (0.0, 1.0)


def test_what_is_set_arrives_in_the_dataclass(make_node):
    node = make_node(speed=0.25, mode="fast", names=["x"], inner__deep=7)
    assert declare(node, Config) == Config(0.25, "fast", ("x",), Inner(7))


def test_off_needs_no_quotes_in_a_parameter_file(make_node):
    """YAML reads it as false."""
    assert declare(make_node(help=False), Config) == declare(make_node(help="off"), Config) == Config(help="off")


def test_a_prefix_names_the_section(make_node):
    node = make_node(safety__deep=9)
    assert declare(node, Inner, "safety") == Inner(9)


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        ({"speed": 2.0}, InvalidInputError, r"'speed'.*0.0 .. 1.0"),
        ({"speed": "fast"}, InvalidInputError, r"'speed'.*expected float"),
        ({"help": True}, UnknownNameError, r"value of parameter 'help' 'True'.*off, on request"),
        ({"help": 3}, UnknownNameError, r"value of parameter 'help' '3'"),
        ({"mode": "fats"}, UnknownNameError, r"value of parameter 'mode' 'fats'; did you mean 'fast'"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_valid(make_node, values, error, match):
    with pytest.raises(error, match=match):
        declare(make_node(**values), Config)


def test_an_unknown_parameter_is_an_error(make_node):
    node = make_node(sped=0.3)
    declare(node, Config)
    with pytest.raises(UnknownNameError, match="unknown parameter of n 'sped'; did you mean 'speed'"):
        check_unknown(node)
