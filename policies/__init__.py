"""The vision-language-action policies, registered with LeRobot as ``engram_vla`` and ``engram_backbone``.

LeRobot's commands find them, and our environment, with ``--policy.discover_packages_path=engram.lerobot``
(``lerobot-train``) or ``--env.discover_packages_path=engram.lerobot`` (``lerobot-eval``).

Importing this imports torch and the parts of LeRobot that our policies are made of. Names are imported when they are
first used.
"""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy
from engram.policies.lean_lerobot import import_parts

if TYPE_CHECKING:
    from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
    from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
    from engram.policies.lerobot.lerobot_policy import LeRobotPolicy
    from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
    from engram.policies.lerobot.processor_engram_backbone import make_engram_backbone_pre_post_processors
    from engram.policies.lerobot.processor_engram_vla import make_engram_vla_pre_post_processors
    from engram.policies.loading import load_policy
    from engram.policies.vla.vla_policy import VlaPolicy

_MODULES = {
    "EngramBackboneConfig": "engram.policies.lerobot.configuration_engram_backbone",
    "EngramVLAConfig": "engram.policies.lerobot.configuration_engram_vla",
    "EngramVLAPolicy": "engram.policies.lerobot.modeling_engram_vla",
    "LeRobotPolicy": "engram.policies.lerobot.lerobot_policy",
    "VlaPolicy": "engram.policies.vla.vla_policy",
    "load_policy": "engram.policies.loading",
    "make_engram_backbone_pre_post_processors": "engram.policies.lerobot.processor_engram_backbone",
    "make_engram_vla_pre_post_processors": "engram.policies.lerobot.processor_engram_vla",
}

__all__ = [
    "EngramBackboneConfig",
    "EngramVLAConfig",
    "EngramVLAPolicy",
    "LeRobotPolicy",
    "VlaPolicy",
    "load_policy",
    "make_engram_backbone_pre_post_processors",
    "make_engram_vla_pre_post_processors",
]
import_parts()  # before a module of this package imports more of LeRobot than it needs
__getattr__, __dir__ = lazy(__name__, _MODULES)
