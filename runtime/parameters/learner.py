"""Parameters of the learner node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import BoundNodeConfig, param


@dataclass(frozen=True)
class LearnerNodeConfig(BoundNodeConfig):
    """Parameters of the learner node."""

    niceness: int = param(10, 0, 19)
    """No command waits for this process, so on a busy machine it yields to the others (Unix nice)."""
    robot: str = "panda_2f85"
    """Robot whose policy is trained: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    policy: str = "base"
    """Checkpoint to start from, or package.module:attribute of a Policy of your own. Only experience of its lineage is
    learnt from."""
    algorithm: str = "behavior_cloning"
    """How it learns: behavior_cloning; with critics, which learn from failures, too: advantage_cloning, edit_actor,
    best_of_n, noise_steering or soft_actor_critic; or package.module:attribute of your own.
    edit_actor:takeover_cost=0.5: that a person takes over costs critics half a success, and is what the motions before
    led to."""
    folder: str = "~/.local/share/engram/{robot_id}/learner"
    """Folder for experience, training state and weights; "{robot_id}" is filled in."""
    promote: str = param("gated", choices=("gated", "manual", "auto"))
    """Who lets a candidate drive. gated: policy/promote, if `engram validate` has promoted it against what drives.
    manual: policy/promote, without any proof. auto: this node at once and until it starts again, without any proof, for
    experiments in simulation."""
    commit_period_s: float = param(0.5, 0.05, 60.0)
    """Time between two commits of received experience [s]; each is acknowledged."""
    false_rollback: float = param(0.05, 0.0, 0.5)
    """What was promoted is rolled back when the robots succeed with it less often than with the newest version before
    that has ten goals of the task, task by task, whoever promoted it. Largest probability of that although it does as
    well; 0: never roll back unasked."""
    canary_episodes: int = param(0, 0, 100000)
    """Where there are several robots, what is promoted drives one of them alone until so many of its episodes came in,
    and it was not rolled back; then it is announced to all of them. It is the first of weights_for, else the learner's
    own, if that sends experience. 0: it is announced to all at once."""
    save_every: int = param(50, 1, 1000000)
    """Updates between two saved training states."""
    chunk_size: int = param(65536, 1024, 1048576)
    """Size of the slices in which weights travel [bytes]; of a file that would need more than 256 they are larger."""
    signing_key: str = ""
    """PEM file with the Ed25519 private key that signs manifests, see `engram keys`; empty: they are not signed."""
    weights_for: tuple[str, ...] = ("",)
    """robot_id of each robot that weights are for, and whose goals count for rollbacks and canaries; [""]: the
    learner's own, and each whose experience it has."""
    writers: tuple[str, ...] = ("",)
    """Who must write experience, as experience=node: a node of this namespace, a full name such as /r2/policy_node, or
    /*/policy_node, in any namespace. Each robot's belongs to the first of them that writes it, until that ends. Others
    are refused and named."""
