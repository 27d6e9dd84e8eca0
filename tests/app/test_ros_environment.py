"""A terminal in which another ROS is sourced: its packages would come before the wheels."""

import os

import pytest

from engram.app import ros_environment, up
from engram.app.ros_environment import foreign_ros
from engram.core.errors import EngramError


def package(folder):
    (folder / "rclpy").mkdir(parents=True)
    (folder / "rclpy" / "__init__.py").touch()
    return folder


def test_here_nothing_is_in_the_way():
    assert foreign_ros(environ={}) == ""


def test_another_rclpy_before_ours_is_named(tmp_path):
    ours, other = package(tmp_path / "venv"), package(tmp_path / "opt" / "ros")
    assert foreign_ros([str(ours), str(other)], {}, ours) == ""
    assert str(other) in foreign_ros([str(other), str(ours)], {}, ours)
    assert foreign_ros([str(other)], {}, tmp_path / "without") == ""  # built in a ROS workspace: there are no wheels


def test_libraries_and_middleware_of_another_ros_are_named(tmp_path):
    ours, libraries = package(tmp_path / "venv"), tmp_path / "lib"
    libraries.mkdir()
    environ = {"LD_LIBRARY_PATH": f"{tmp_path}{os.pathsep}{libraries}{os.pathsep}"}
    assert foreign_ros([str(ours)], environ, ours) == ""
    (libraries / "librcl.so").touch()
    assert foreign_ros([str(ours)], environ, ours) == f"LD_LIBRARY_PATH has another ROS: {libraries}"
    said = foreign_ros([str(ours)], {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, ours)
    assert said.startswith("RMW_IMPLEMENTATION is 'rmw_cyclonedds_cpp'")
    for fine in ("rmw_fastrtps_cpp", ""):  # empty: ROS takes its default
        assert foreign_ros([str(ours)], {"RMW_IMPLEMENTATION": fine}, ours) == ""


def test_engram_up_starts_nothing_then(monkeypatch):
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_cyclonedds_cpp")
    monkeypatch.setattr(up, "Supervisor", None)  # it is not even made
    with pytest.raises(EngramError, match=r"rmw_cyclonedds_cpp.*use a terminal in which no ROS is sourced"):
        up.up(up.UpConfig("memory"))
    assert ros_environment.foreign_ros()
