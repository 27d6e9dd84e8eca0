"""One trial of the link: the node set on two machines, episodes, and what has crossed the link in the end.

The goals are given on the robot's machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.benchmarks.link_machines import Machines, machines
from engram.benchmarks.link_rig import LinkRig
from engram.learning.experience.spool import Spool
from engram.learning.experience.store import ExperienceStore
from engram.nodes.loop_client import EpisodeReport, LoopError

CAMERAS_OF = "images of "
"""How the names of the page's counters of images begin."""
EPISODE_TIMEOUT_S = 120.0
"""An episode without an outcome after so long has failed [s], wall clock."""


@dataclass(frozen=True)
class Condition:
    """What the link does, each way."""

    name: str
    loss: float = 0.0
    """Share of the Ethernet frames that is lost."""
    delay_s: float = 0.0
    """Delay [s]."""
    cut_s: float = 0.0
    """Cut the link for so long as each goal is given [s]; 0: never."""
    policy_far: bool = False
    """Run the policy on the other machine, in real time; it is meant to be beside the body."""


@dataclass
class Trial:
    """What came out."""

    condition: Condition
    episodes: list[EpisodeReport] = field(default_factory=list)
    cuts: int = 0
    recorded: int = 0
    """Control steps that the policy node has put into its spool."""
    stored: int = 0
    """Control steps in the other machine's experience store."""
    unacknowledged: int = 0
    caught_up_s: float = 0.0
    """From the end of the last episode until the robot had the receipt of every step [s]."""
    images_sent: dict[str, int] = field(default_factory=dict)
    images_shown: dict[str, int] = field(default_factory=dict)
    wall_s: float = 0.0
    """From the first goal to the last outcome [s]."""
    lost: dict[str, int] = field(default_factory=dict)
    """How often each side's diagnostics said that the link was lost."""
    restored: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Control steps of the episodes, as their outcomes tell."""
        return sum(episode.steps for episode in self.episodes)

    @property
    def succeeded(self) -> int:
        """Number of episodes that succeeded."""
        return sum(episode.outcome == "succeeded" for episode in self.episodes)

    def arrived(self, camera: str) -> float:
        """Return the share of a camera's compressed images that the page got."""
        return self.images_shown.get(camera, 0) / max(1, self.images_sent.get(camera, 0))


def trial_from(values: Mapping[str, Any]) -> Trial:
    """Return the trial that ``dataclasses.asdict`` has taken apart."""
    episodes = [EpisodeReport(**episode) for episode in values["episodes"]]
    return Trial(**{**values, "condition": Condition(**values["condition"]), "episodes": episodes})


def run_trial(
    condition: Condition,
    goals: list[tuple[str, int]],
    folder: Path,
    *,
    domain: int,
    policy: str = "base",
    seed: int = 0,
) -> Trial:
    """Run the episodes ``goals``, (task, seed) each, over a link of ``condition``, bad from the first packet on."""
    trial = Trial(condition)
    with LinkRig(seed) as rig:
        rig.set(loss=condition.loss, delay_s=condition.delay_s)
        with machines(rig, folder, domain, policy, condition.policy_far) as running:
            client = running.client
            shown_before = running.counts("viewer_node", CAMERAS_OF)
            sent_before = running.counts("link_node", "color images of ")
            began = time.monotonic()
            for task, number in goals:
                if condition.cut_s:
                    running.cut(condition.cut_s)
                trial.episodes.append(_episode(running, task, number))
                client.wait_for(running.whole, 120.0, "the cut is over, and both sides have heard of each other")
            trial.wall_s = time.monotonic() - began
            if not condition.policy_far:
                _wait_for_receipts(running, trial)
            client.spin(3.0)  # the newest counters
            trial.images_shown = _less(running.counts("viewer_node", CAMERAS_OF), shown_before)
            trial.images_sent = _less(running.counts("link_node", "color images of "), sent_before)
            for node in ("link_node", "far_link_node"):
                trial.lost[node] = int(running.values(node).get("link lost", 0))
                trial.restored[node] = int(running.values(node).get("link restored", 0))
            trial.cuts, trial.frames = running.cuts, rig.counts()
    if not condition.policy_far:
        _count_experience(folder, trial)
    return trial


def _episode(running: Machines, task: str, seed: int) -> EpisodeReport:
    try:
        return running.client.run_episode(task, seed, EPISODE_TIMEOUT_S)
    except LoopError as error:
        return EpisodeReport(task, seed, 0, "", "no outcome", str(error), 0, EPISODE_TIMEOUT_S)


def _wait_for_receipts(running: Machines, trial: Trial) -> None:
    began = time.monotonic()
    running.client.spin(2.0)  # until the diagnostics have the last step

    def stored() -> bool:
        recorded = int(running.values("policy_node").get("experience", 0))
        return int(running.values("learner_node").get("stored transitions", 0)) >= recorded > 0

    with suppress(LoopError):  # the figures tell what is missing
        running.client.wait_for(stored, 120.0, "everything that was recorded is stored")
    trial.caught_up_s = time.monotonic() - began
    trial.recorded = int(running.values("policy_node").get("experience", 0))


def _count_experience(folder: Path, trial: Trial) -> None:
    """Look into spool and store, both closed by their nodes."""
    shared = ".local/share/engram/sim-robot0"
    spool = Spool(folder / "body" / shared / "spool", "robot0")
    trial.unacknowledged = len(spool)
    spool.close()
    store = ExperienceStore(folder / "far" / shared / "learner/experience")
    trial.stored = store.size()
    store.close()


def _less(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items()}
