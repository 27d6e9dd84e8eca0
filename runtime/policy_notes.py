"""Keys of diagnostics about what drives, for the node that writes them and those that read them."""

from __future__ import annotations

POLICY_DRIVES = "policy drives"
"""The policy that drives in this episode."""
POLICY_READY = "policy ready"
"""The policy that drives from the next episode on."""
CORRECTED_BY = "motions corrected by"
"""The correction of all motions that drives in this episode."""
JUDGED = "goal judged"
"""How the goal that runs stands, as the memory or a success classifier sees it: the word that counts."""
MISTAKEN = "oracle: goals taken for reached"
"""In simulation: how many of the goals that the simulator saw fail were reached in the eyes of the memory or of a
classifier. On a robot each of these would have ended as a success."""
REMEMBERED = "policy remembers"
"""What the sequence memory holds, in a few words."""
DRIVING = "driving version"
"""Of the learner node: the version that it lets drive; the policy node takes it with the next episode."""
POLICIES = "policies available"
"""Names that the parameter ``policy`` may be set to while the node runs, separated by commas; none: it may not."""


def describe_driver(policy: str, ablation: str = "") -> str:
    """Return the name of a policy together with its ablation."""
    return f"{policy}, memory {ablation}" if ablation else policy
