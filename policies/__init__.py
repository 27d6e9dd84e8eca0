"""The vision-language-action policy, registered with LeRobot as ``engram_vla``.

LeRobot's commands find it with ``--policy.discover_packages_path=engram.policies`` (``lerobot-train``) or, with
``--policy.path``, ``--env.discover_packages_path=engram.policies`` (``lerobot-eval``).
"""

# importing these registers the policy's configuration and processor steps with LeRobot
from engram.policies.configuration_engram_vla import EngramVLAConfig
from engram.policies.modeling_engram_vla import EngramVLAPolicy
from engram.policies.processor_engram_vla import make_engram_vla_pre_post_processors
from engram.policies.vla_policy import VlaPolicy, load_policy

__all__ = [
    "EngramVLAConfig",
    "EngramVLAPolicy",
    "VlaPolicy",
    "load_policy",
    "make_engram_vla_pre_post_processors",
]
