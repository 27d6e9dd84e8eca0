"""Parameters of the policy node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.learning.weights.keys import ACCEPT
from engram.runtime.parameters import BoundNodeConfig, CameraNodeConfig, StepNodeConfig, param

CORRECTION_MODES = ("none", "found", "search")
AS_USED = -1.0
"""Of ``adaptive_m``: what the policy's own configuration says."""


@dataclass(frozen=True)
class PolicyNodeConfig(BoundNodeConfig, StepNodeConfig, CameraNodeConfig):
    """Parameters of the policy node."""

    policy: str = param("base", live=True)
    """Checkpoint's name or folder, or package.module:attribute of a Policy of your own.
    Set while the node runs, it drives from the next episode on; see ``policies``."""
    policies: str = ""
    """Policies that ``policy`` may be set to while the node runs, separated by commas, beside the one that the node
    began with. If ``accept`` is any, the shipped ones may be chosen, too."""
    ablation: str = param("", live=True)
    """Ablation, as an experiment. Of the sequence memory: zeroed, swapped, noise; of memory/context: no_context;
    empty: none."""
    execute_steps: int = param(0, 0, 64)
    """Replan after so many steps of an action chunk; 0: the policy's own setting. Checkpoints only."""
    ensemble: bool = False
    """Replan at every step and average the chunks where they overlap. Checkpoints only."""
    real_time_delay: int = param(0, 0, 15)
    """Real-time chunking for answers that arrive so many control steps late; 0: off. Checkpoints only."""
    adaptive_m: float = param(AS_USED, AS_USED, 1.0)
    """Replan at every step, and switch to the new chunk when following it would move the tool more than this from
    the running one within 4 steps [m]; 0: never; below 0: the policy's own setting."""
    exploration: float = param(0.0, 0.0, 1.0)
    """Standard deviation of the noise on a motion while the policy practises for the learner, as a share of 0.05 + 0.5
    of the motion; 0: none."""
    exploration_hold: int = param(4, 0, 64)
    """Control steps for which a draw of the noise is kept. 0: the whole goal; a draw then turns, stretches and shifts
    every translation of the tool alike, which tells critics most."""
    correction: str = param("none", choices=CORRECTION_MODES)
    """Corrections of all motions, how far they lead and in which direction: none; found: the one that suits the goal's
    kind drives, if any was found; search: goal by goal another one is tried, and the best one is kept. What is driven
    with one is not imitated, and exploration adds nothing while one is searched for."""
    correction_goals: int = param(50, 2, 10_000)
    """Goals of a search for a correction."""
    correction_margin: float = param(0.2, 0.0, 1.0)
    """How far a search may lower the mean outcome (0..1) of the newest 20 goals, below that of goals without a further
    correction: it tries none while one that reaches nothing could go below. 1: however far."""
    correction_folder: str = "~/.local/share/engram/{robot_id}/corrections"
    """Folder for the corrections and what was tried."""
    robot: str = "panda_2f85"
    """Robot that is driven: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    cameras: tuple[str, ...] = ("",)
    """Cameras that make an observation; [""]: all of the robot's."""
    camera_tolerance_s: float = param(0.0, 0.0, 1.0)
    """How far a camera's stamp may be from the joint states' [s]; 0: equal stamps (simulation)."""
    control_dt_s: float = param(0.1, 0.01, 1.0)
    """Length of one control step [s]; joint states that come faster are passed over."""
    memory: str = param("latest", choices=("off", "latest", "wait"))
    """memory/context: off = not used; latest = the newest there is; wait = the one of the same observation. A policy
    that acts on it answers no observation for which there is none, unless it is off."""
    context_age_s: float = param(0.3, 0.0, 60.0)
    """In lock-step a policy that acts on memory/context waits until the newest context is of this episode and at most
    this much older than the observation [s of the node's clock]; after missing_after_s it goes on without. Not less
    than the period at which perception processes frames."""
    missing_after_s: float = param(2.0, 0.1, 60.0)
    """Report what an observation lacks after waiting this long [s]. Without lock-step a policy that acts on
    memory/context waits until the newest one is at most this much older than the observation."""
    episodes: str = param("status", choices=("status", "goal"))
    """Who begins episodes: task/status (simulation), or execute_task goals (robot; then this node publishes it)."""
    check_instructions: bool = True
    """Reject goals whose words fit no wording of a simulated task; the words choose the task that is begun."""
    tasks: str = ""
    """Tasks of your own whose words are understood too, as package.module:attribute, separated by commas."""
    accept: str = param("any", choices=ACCEPT)
    """Weights to take from the learner: approved ones only (a robot), any that is not rejected, or none. Whatever it
    says, weights of another lineage than the policy's are refused. "approved" needs a trusted_key, and so does "any" on
    a robot."""
    trusted_key: str = ""
    """PEM file, or folder of PEM files, with the Ed25519 public keys that may sign manifests; see `engram keys`. Empty:
    manifests come unsigned, which only a simulation takes. A signed manifest must be for this robot_id, and no older
    than the newest before it."""
    weights_max_mb: int = param(1024, 1, 65536)
    """Largest weight file to take [MiB]."""
    weights_folder: str = "~/.local/share/engram/{robot_id}/weights"
    """Folder for received weights."""
    memory_folder: str = "~/.local/share/engram/{robot_id}/episode"
    """Folder for the sequence memory of the running episode, so that a restarted node continues the episode."""
    experience: bool = False
    """Send every control step to the learner."""
    spool: str = "~/.local/share/engram/{robot_id}/spool"
    """Folder in which experience waits for the learner's acknowledgement."""
    verdict: str = param("memory", choices=("off", "memory"))
    """Who judges whether a goal is reached: the memory, by the relation that its words name, or nobody. On a robot
    (episodes: goal) a goal then ends when its success is certain; in simulation the simulator ends it all the same,
    and the verdict is the goal's progress."""
    success_classifiers: tuple[str, ...] = ("",)
    """Folders of success classifiers (engram classifier), which judge goals that the memory cannot; [""]: none."""
    goal_timeout_s: float = param(60.0, 0.1, 86400.0)
    """Time limit of a goal that names none [s]: of the simulation's clock, on a robot of time that nobody can set."""
    status_timeout_s: float = param(30.0, 1.0, 3600.0)
    """End a goal in simulation when there was no task/status for so long [s], wall clock."""
    lost_after_s: float = param(5.0, 0.1, 3600.0)
    """A goal fails when joint states, a camera, tf, memory/context (where it is waited for) or safety/executed are
    missing for so long [s], wall clock. In lock-step 1.5 times status_timeout_s counts instead, for safety/executed
    twice status_timeout_s."""
    policy_timeout_s: float = param(30.0, 0.1, 3600.0)
    """A goal fails when the policy did not answer an observation for so long, or with errors alone [s], wall clock."""
