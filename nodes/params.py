"""One bridge from frozen dataclasses to ROS parameters.

A field becomes a parameter with its default, its docstring as description and its range; what the user sets comes
back as an instance of the same dataclass. Unknown parameters are errors that name the valid ones.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException

from engram.core.errors import InvalidInputError, unknown_name
from engram.runtime.parameters.field import descriptions

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.parameter import Parameter

T = TypeVar("T")
BUILT_IN = ("use_sim_time", "start_type_description_service")


def declare[T](node: Node, cls: type[T], prefix: str = "") -> T:
    """Declare every field of ``cls`` as a parameter ``prefix.field`` of ``node`` and return what was set.

    Raises:
        InvalidInputError: a value of the wrong type or outside its range.
        UnknownNameError: a value that is not among the field's choices.
    """
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = f"{prefix}.{field.name}" if prefix else field.name
        values[field.name] = _declare_field(node, name, field, descriptions(cls).get(field.name, ""))  # type: ignore[arg-type]
    return cls(**values)


def _declare_field(node: Node, name: str, field: dataclasses.Field, description: str) -> Any:
    if dataclasses.is_dataclass(field.default_factory):  # a section within the section
        return declare(node, field.default_factory, name)
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    descriptor = ParameterDescriptor(description=description, read_only=not field.metadata.get("live", False))
    low, high = field.metadata.get("range", (None, None))
    if low is not None:
        _set_range(descriptor, default, low, high)
        description = f"{description} [{low} .. {high}]"
    choices = field.metadata.get("choices", ())
    if choices:
        descriptor.additional_constraints = "one of: " + ", ".join(choices)
    descriptor.dynamic_typing = unquoted = "off" in choices  # YAML reads that as a bool unless it stands in quotes
    try:
        value = node.declare_parameter(name, default, descriptor).value
    except InvalidParameterTypeException as error:
        raise InvalidInputError(f"parameter {name!r}: {error}; expected {type(default).__name__}") from None
    except InvalidParameterValueException as error:
        raise InvalidInputError(f"parameter {name!r}: {error}; expected {low} .. {high}") from None
    value = "off" if unquoted and value is False else value
    if choices and str(value) not in choices:
        raise unknown_name(f"value of parameter {name!r}", str(value), choices)
    return tuple(value) if isinstance(field.default, tuple) else value


def _set_range(descriptor: ParameterDescriptor, default: Any, low: float, high: float) -> None:
    if isinstance(default, int):
        descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=0)]
    else:
        descriptor.floating_point_range = [FloatingPointRange(from_value=float(low), to_value=float(high), step=0.0)]


def keep_clock(node: Node) -> None:
    """Let nobody on the network change what time it is for ``node``: ``use_sim_time`` is set at the start."""

    def judge(changed: list[Parameter]) -> SetParametersResult:
        named = any(parameter.name == "use_sim_time" for parameter in changed)
        reason = "use_sim_time is read at the start: set it at launch" if named else ""
        return SetParametersResult(successful=not reason, reason=reason)

    node.add_on_set_parameters_callback(judge)


def check_unknown(node: Node) -> None:
    """Raise UnknownNameError if a parameter file or argument sets what this node does not have."""
    declared = [name for name in node._parameters if not name.startswith("qos_overrides.")]
    for name in node._parameter_overrides:
        if name not in declared and name not in BUILT_IN and not name.startswith("qos_overrides."):
            raise unknown_name(f"parameter of {node.get_name()}", name, declared)
