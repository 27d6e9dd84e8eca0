"""Quality of service, chosen per topic and written down once.

Queues are shallow on purpose: at 10 Hz the newest sample is the one that matters, and a deep queue of images only
adds delay. Nothing that moves the robot is best effort: a lost command is a held robot.
"""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy


def _profile(depth: int, *, reliable: bool = True, latched: bool = False) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


SENSOR = _profile(2)
"""Images, camera_info, joint_states, tf as we publish them; reliable, so every subscriber matches."""
SENSOR_BEST_EFFORT = _profile(2, reliable=False)
"""Images as we subscribe to them from a robot's drivers, which often publish best effort."""
COMPRESSED = _profile(8)
"""Compressed images, which travel to other machines: what a bad link loses is sent again, while it is newer than this
many later images."""
TF = _profile(100)
"""Subscriptions to tf: many publishers, many frames."""
TF_STATIC = _profile(100, latched=True)
"""Subscriptions to tf_static."""
COMMAND = _profile(1)
"""command, memory/context: the newest counts."""
CHUNK = _profile(1, latched=True)
"""policy/action_chunk: a safety node that was restarted in mid-episode goes on with the chunk at hand."""
LATCHED = _profile(1, latched=True)
"""task/status, safety/stopped, robot_description, policy/candidate, tf_static as we publish it: a node that starts late
still learns the last one."""
MANIFEST = _profile(2, latched=True)
"""policy/manifest: what drives all robots, and the canary that one of them tries."""
GRAPH = _profile(64, latched=True)
"""memory/graph: changes in order; a late reader gets the recent ones and asks for the rest."""
WEIGHTS = _profile(512, latched=True)
"""policy/weights: all slices of two weight files (``FILE_SLICES`` each at most), also for a node that starts late."""
EVENTS = _profile(64)
"""intervention, scene/observation: a short burst must not be lost."""
DETECTIONS = _profile(10, reliable=False)
"""detections, as we subscribe to them: best effort matches every detector."""
EXPERIENCE = _profile(32)
"""experience: what is lost here is sent again from the spool until it is acknowledged."""
DIAGNOSTICS = _profile(10)
"""diagnostics, as ROS's own tools expect it."""


def is_latched(profile: QoSProfile) -> bool:
    """Tell whether who comes late gets what was said before."""
    return profile.durability == DurabilityPolicy.TRANSIENT_LOCAL


def beside_strangers(profile: QoSProfile) -> QoSProfile:
    """Return ``profile`` for reading what counts from one writer: room is for all writers of a topic together.

    What is latched comes once: with room for one, a stranger's message would take the place of the writer's for good.
    """
    reliable = profile.reliability == ReliabilityPolicy.RELIABLE
    return _profile(max(16, profile.depth), reliable=reliable, latched=True) if is_latched(profile) else profile


def describe(profile: QoSProfile) -> str:
    """Return ``profile`` in words."""
    reliable = "reliable" if profile.reliability == ReliabilityPolicy.RELIABLE else "best effort"
    return f"{reliable}{', transient local' if is_latched(profile) else ''}, depth {profile.depth}"


CHUNK_STEPS = 64
"""Control steps that one chunk covers at most."""


def every_step(profile: QoSProfile, *, lockstep: bool) -> QoSProfile:
    """Return ``profile`` for writing or reading what each control step brings: in lock-step none may be missed.

    The simulation waits for the command of a step, not for all who read it. While a chunk lasts it may be ahead of a
    policy that is slow to listen by as many steps, and the newest two or one would be all that is left of them. What
    is not latched a writer forgets when all have taken it.
    """
    return _profile(CHUNK_STEPS, latched=is_latched(profile)) if lockstep else profile


def every_status(*, lockstep: bool) -> tuple[str, QoSProfile]:
    """Return the topic that has the status of the task at every control step, and the profile for reading it.

    task/status is latched and one deep: a late reader gets the newest status alone. In lock-step, where no step may be
    missed, task/step has each of them from now on; who comes late is shown the step under way again.
    """
    return ("task/step", _profile(CHUNK_STEPS)) if lockstep else ("task/status", LATCHED)


def sensor_subscription(*, lockstep: bool) -> QoSProfile:
    """Return the profile for reading cameras: in lock-step one lost image would stop the simulation."""
    return every_step(SENSOR_BEST_EFFORT, lockstep=lockstep)
