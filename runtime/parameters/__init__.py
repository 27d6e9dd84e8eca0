"""The parameters of the nodes as frozen dataclasses, without ROS; ``nodes/params.py`` declares them."""

from engram.runtime.parameters.bound import BoundNodeConfig
from engram.runtime.parameters.field import descriptions, param
from engram.runtime.parameters.node import CameraNodeConfig, NodeConfig, StepNodeConfig

__all__ = ["BoundNodeConfig", "CameraNodeConfig", "NodeConfig", "StepNodeConfig", "descriptions", "param"]
