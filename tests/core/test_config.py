import pytest

from engram.core.config import load_yaml
from engram.core.errors import InvalidInputError


def test_a_missing_file_lists_its_neighbours(tmp_path):
    (tmp_path / "sim.yaml").write_text("a: 1")
    with pytest.raises(InvalidInputError, match=r"robot\.yaml: no such file; there: sim\.yaml"):
        load_yaml(tmp_path / "robot.yaml")


def test_broken_yaml_is_named(tmp_path):
    (tmp_path / "sim.yaml").write_text("a: [1")
    with pytest.raises(InvalidInputError, match=r"sim\.yaml: not YAML"):
        load_yaml(tmp_path / "sim.yaml")
