"""What the policy node tells of itself in its diagnostics, for those who read it."""

from __future__ import annotations

POLICY_DRIVES = "policy drives"
"""What drives in this episode."""
POLICY_READY = "policy ready"
"""What drives from the next episode on."""
REMEMBERED = "policy remembers"
"""What the policy remembers of its episode, in a few words."""
POLICIES = "policies available"
"""Names that the parameter ``policy`` may be set to while the node runs, separated by commas; none: it may not."""


def describe_driver(policy: str, ablation: str = "") -> str:
    """Return what drives: a policy, and what its memory is spoilt by."""
    return f"{policy}, memory {ablation}" if ablation else policy
