"""What LeRobot's own commands load: our policies ``engram_vla`` and ``engram_backbone`` with their processor steps, the
step ``engram_motion_edit`` of what frozen policies learn, our reward model ``engram_success``, our environment
``engram``.

    lerobot-eval --policy.path=$(engram policy path base) --env.type=engram --env.task=PickPlace-v0 \\
      --env.discover_packages_path=engram.lerobot
    lerobot-train --policy.type=engram_vla --policy.discover_packages_path=engram.lerobot ...

Importing a module registers it with LeRobot.
"""

from engram.learning.rewards.lerobot.configuration_engram_success import EngramSuccessConfig
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from engram.policies.lerobot.processor_engram_backbone import UnitImages
from engram.policies.lerobot.processor_engram_vla import DownsampleImages, EmbedInstruction
from engram.sim.lerobot_env import EngramEnvConfig

__all__ = [
    "DownsampleImages",
    "EmbedInstruction",
    "EngramBackboneConfig",
    "EngramEnvConfig",
    "EngramSuccessConfig",
    "EngramVLAConfig",
    "MotionEditStep",
    "UnitImages",
]
