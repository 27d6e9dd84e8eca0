"""The vision-language-action policies, registered with LeRobot as ``engram_vla`` and ``engram_backbone``.

LeRobot's commands find them, and our environment, with ``--policy.discover_packages_path=engram.lerobot``
(``lerobot-train``) or ``--env.discover_packages_path=engram.lerobot`` (``lerobot-eval``).
"""

# importing these registers the policy's configuration and processor steps with LeRobot
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.processor_engram_backbone import make_engram_backbone_pre_post_processors
from engram.policies.lerobot.processor_engram_vla import make_engram_vla_pre_post_processors
from engram.policies.vla.vla_policy import VlaPolicy, load_policy

__all__ = [
    "EngramBackboneConfig",
    "EngramVLAConfig",
    "EngramVLAPolicy",
    "VlaPolicy",
    "load_policy",
    "make_engram_backbone_pre_post_processors",
    "make_engram_vla_pre_post_processors",
]
