from dataclasses import dataclass

import pytest

from engram.core.config import from_mapping, load_yaml
from engram.core.errors import InvalidInputError, UnknownNameError


@dataclass(frozen=True)
class ArmConfig:
    rate_hz: float = 10.0
    joints: tuple[str, ...] = ()
    steps: int = 3
    fast: bool = False


def test_values_are_converted_where_nothing_is_lost():
    assert from_mapping(ArmConfig, {"rate_hz": 5, "joints": ["a", "b"]}) == ArmConfig(5.0, ("a", "b"))


def test_an_unknown_key_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown ArmConfig field 'rate'; did you mean 'rate_hz'"):
        from_mapping(ArmConfig, {"rate": 1.0})


@pytest.mark.parametrize("values", [{"steps": 2.5}, {"steps": True}, {"fast": 1}, {"rate_hz": "fast"}])
def test_a_wrong_type_is_refused(values):
    with pytest.raises(InvalidInputError, match=r"ArmConfig\.\w+: .* expected"):
        from_mapping(ArmConfig, values)


def test_a_missing_file_lists_its_neighbours(tmp_path):
    (tmp_path / "sim.yaml").write_text("a: 1")
    with pytest.raises(InvalidInputError, match=r"robot\.yaml: no such file; there: sim\.yaml"):
        load_yaml(tmp_path / "robot.yaml")


def test_broken_yaml_is_named(tmp_path):
    (tmp_path / "sim.yaml").write_text("a: [1")
    with pytest.raises(InvalidInputError, match=r"sim\.yaml: not YAML"):
        load_yaml(tmp_path / "sim.yaml")
