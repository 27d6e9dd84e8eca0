"""``engram demo --learning``: a robot that fails at a task learns it beside the loop, and does it again.

The simulated robot differs from the one that the policy was trained on (:mod:`engram.sim.gaps`), and nothing tells the
nodes how. It works first: what it does is recorded. ``gate_node`` finds in the record how the robot differs, and
practises in a simulation that differs likewise. ``learner_node`` makes what was found part of the weights, the gate
tries them, and what it promotes drives the same goals in the same scenes. What is learnt lies in a new folder beside
the demo's logs: it suits this robot, not the one of the next demo.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engram.app.launch_graph import LaunchGraph
from engram.core.errors import InvalidInputError, unknown_name
from engram.runtime.episode_report import EpisodeReport, LoopError
from engram.runtime.factories import policy_folder
from engram.runtime.health import Condition
from engram.runtime.policy_notes import DRIVING
from engram.sim.gap_world import world_gap
from engram.sim.gaps import Gap

PARAMETERS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "gate_node": (("identify", True), ("practise", True), ("workers", 2), ("budget", 600)),
    "learner_node": (("learner.updates_per_episode", 0),),
}
"""Of the nodes that learn, beside those of ``config/sim.yaml``: a robot's practice, with more pairs of episodes for the
gate and a second process."""
FIXED = ("world", "learner", "gate", "learner_of", "link", "accept", "correction", "params_file", "policy")
"""Launch arguments that the demo of learning needs as they are."""
NEWS = (("gate_node", "robot"), ("gate_node", "practice"), ("gate_node", "candidate"))
"""What is told while the robot learns: a node, and what its diagnostics call it."""
NEWS_EVERY_S = 20.0
"""Time between two news of the same kind [s]."""
ENDS = ("reject", "not_shown", "failed")
"""What the gate may say of a candidate that will not drive."""
SETTLING = 5
"""Goals at most until the policy node drives with what the learner let drive."""


class Client(Protocol):
    """What is asked of :class:`engram.nodes.loop_client.LoopClient`."""

    @property
    def diagnostics(self) -> Mapping[str, Condition]:
        """The newest condition of each node."""

    def run_episode(self, task: str, seed: int, timeout_s: float) -> EpisodeReport:
        """Run an episode."""

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait; raises LoopError."""

    def spin(self, seconds: float) -> None:
        """Take in messages for a while."""


@dataclass(frozen=True)
class LearningShow:
    """What is learnt, on which robot.

    Raises:
        UnknownNameError: there is no such policy or gap, or the policy was not trained on the task.
        InvalidInputError: nothing could be learnt.
    """

    policy: str
    task: str
    gap: str
    """How the robot differs: one of :data:`engram.sim.gap_world.WORLD_GAPS`."""
    goals: int
    """Before it learns, and again afterwards."""
    longest_s: float
    """Longest wait for what it learns [s]."""

    def __post_init__(self) -> None:
        from engram.validation.identify import FEWEST  # slow to import
        from engram.validation.validate import trained_tasks

        if self.goals < FEWEST:
            raise InvalidInputError(
                f"DemoConfig.episodes: {self.goals}, expected {FEWEST} or more: fewer do not tell how the robot differs"
            )
        if world_gap(self.gap) == Gap():
            raise InvalidInputError(f"DemoConfig.learning_on: {self.gap!r} differs in nothing; choose another, as late")
        known = trained_tasks(policy_folder(self.policy))
        if self.task not in known:
            raise unknown_name(f"task of the policy {self.policy}", self.task, known)

    @property
    def world(self) -> str:
        """The world to simulate."""
        return f"tabletop:gap={self.gap}"

    def check_launch(self, names: Iterable[str]) -> None:
        """Raise InvalidInputError for launch arguments that would keep the robot from learning, or from differing."""
        if fixed := [name for name in names if name in FIXED]:
            raise InvalidInputError(f"DemoConfig.launch: {fixed[0]}: the demo of learning sets it itself")


@dataclass
class Learning:
    """What came of it."""

    show: LearningShow
    before: list[EpisodeReport] = field(default_factory=list)
    after: list[EpisodeReport] = field(default_factory=list)
    minutes: float | None = None
    """From the first goal to what the gate promoted; None: it promoted nothing."""
    version: str = ""
    """What drove afterwards."""

    @property
    def wanted(self) -> int:
        """Goals of a demo that was not interrupted: where nothing was learnt, none follow."""
        return len(self.before) + self.show.goals if self.version else self.show.goals

    @property
    def reports(self) -> list[EpisodeReport]:
        """Of all goals."""
        return [*self.before, *self.after]

    def figures(self) -> dict[str, object]:
        """Return what came of it, [successes, goals] before and after; ready for JSON."""
        return {
            "task": self.show.task,
            "robot": self.show.gap,
            "before": count(self.before),
            "after": count(self.after),
            "minutes": self.minutes,
            "version": self.version,
        }

    def curve(self) -> str:
        """Return one line for the goals before and one for those afterwards, a sign for each."""
        lines = []
        for name, done in (("before", self.before), ("after", self.after)):
            signs = " ".join("x" if report.outcome == "succeeded" else "." for report in done)
            successes, goals = count(done)
            lines.append(f"  {name:7} {signs}   {successes} of {goals}")
        return "\n".join(lines)


def count(done: list[EpisodeReport]) -> list[int]:
    """Return [successes, goals]."""
    return [sum(report.outcome == "succeeded" for report in done), len(done)]


def with_learning(graph: LaunchGraph) -> LaunchGraph:
    """Return ``graph`` with nodes that learn as on a robot."""
    nodes = [
        dataclasses.replace(node, parameters=(*node.parameters, *PARAMETERS.get(node.executable, ())))
        for node in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


class Course:
    """Lets a robot learn, and tells what happens.

    Args:
        learning: gets what came of it.
        client: of the running nodes.
        tell: prints a line.
        failed: names of the nodes that stay down.
        seed: of the first scene.
        timeout_s: of a goal, wall clock [s].
    """

    def __init__(
        self,
        learning: Learning,
        client: Client,
        tell: Callable[[str], None],
        failed: Callable[[], Iterable[str]],
        seed: int,
        timeout_s: float,
    ) -> None:
        self._learning, self._client, self._tell = learning, client, tell
        self._failed, self._seed, self._timeout_s = failed, seed, timeout_s

    def run(self, startup_s: float) -> None:
        """Give goals that the robot fails at; wait for what it learns; give the same goals again.

        Raises:
            LoopError: a node that is needed stays down, or did not start within ``startup_s``.
        """
        learning, show = self._learning, self._learning.show
        self._client.wait_for(lambda: bool(self._value("learner_node", DRIVING)), startup_s, "the learner")
        drove, began = self._value("learner_node", DRIVING), time.monotonic()
        self._tell(f"a robot that differs from the one {show.policy} was trained on ({show.gap}): {show.task}")
        self._goals(learning.before, lambda: self._value("learner_node", DRIVING) == drove)
        self._tell("it rests; from the fourth goal on its record tells how it differs, and the policy practises for it")
        if why := self._nothing_better_than(drove, began + show.longest_s):
            self._tell(f"nothing better drives: {why}")
            return
        learning.minutes = round((time.monotonic() - began) / 60.0, 1)
        learning.version = version = self._value("learner_node", DRIVING)
        self._tell(
            f"{learning.minutes} minutes after the first goal the gate lets drive {version}; the same goals again"
        )
        self._settle(version)
        self._goals(learning.after, lambda: self._value("policy_node", "policy version") == version)
        self._tell(learning.curve())

    def _value(self, node: str, key: str) -> str:
        said = self._client.diagnostics.get(node)
        return "" if said is None else said.values.get(key, "")

    def _goals(self, done: list[EpisodeReport], goes_on: Callable[[], bool]) -> None:
        show = self._learning.show
        for index in range(show.goals):
            if not goes_on():
                self._tell("other weights drive now")
                return
            report = self._client.run_episode(show.task, self._seed + index, self._timeout_s)
            done.append(report)
            self._tell(report.line(index + 1, show.goals))

    def _nothing_better_than(self, drove: str, until: float) -> str:
        """Wait for something better than ``drove``; return why there is none, empty once it drives."""
        news = News(self._tell)
        while self._value("learner_node", DRIVING) == drove:
            if down := [name for name in self._failed() if name in PARAMETERS]:
                raise LoopError(f"{down[0]} stays down")
            if why := self._hopeless():
                return why
            if time.monotonic() > until:
                return f"not within {self._learning.show.longest_s:g} s"
            self._client.spin(0.5)
            news.look(self._client.diagnostics)
        return ""

    def _hopeless(self) -> str:
        """Return why nothing better will ever come; empty: it may."""
        judges, practice = self._value("gate_node", "judges"), self._value("gate_node", "practice")
        if judges.startswith("nothing"):
            return judges
        if practice.startswith("cannot practise"):
            return practice
        counts = [self._value("gate_node", f"verdicts {decision}") or "0" for decision in ENDS]
        waiting = int(self._value("learner_node", "learner candidates") or 0) > sum(map(int, counts))
        return practice if practice.startswith("nothing more is found") and not waiting else ""

    def _settle(self, version: str) -> None:
        """Give goals that do not count until ``version`` drives: a robot at rest takes new weights with its next."""
        show = self._learning.show
        for number in range(SETTLING):
            if self._value("policy_node", "policy version") == version:
                return
            self._client.run_episode(show.task, self._seed + show.goals + number, self._timeout_s)
            self._client.spin(2.0)  # diagnostics come once a second
        raise LoopError(f"the policy node does not drive with {version}: {self._value('policy_node', 'last problem')}")


class News:
    """Tells what changes in diagnostics, seldom enough to be read."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock, self._began = tell, clock, clock()
        self._told: dict[tuple[str, str], tuple[str, float]] = {}  # what was told last of each, and when

    def look(self, diagnostics: Mapping[str, Condition]) -> None:
        """Tell what is new."""
        now = self._clock()
        for node, name in NEWS:
            said = diagnostics[node].values.get(name, "") if node in diagnostics else ""
            before, at = self._told.get((node, name), ("", -NEWS_EVERY_S))
            if said and said != before and now - at >= NEWS_EVERY_S:
                self._told[node, name] = said, now
                self._tell(f"  {now - self._began:5.0f} s  {name}: {said}")
