"""What the learner node does with experience and weights, without ROS.

Three threads call it: one stores (:mod:`engram.runtime.experience_session`), one trains
(:meth:`LearnerSession.train`), and the node's own decides what drives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engram.core.errors import EngramError, StoreError, WeightsError
from engram.core.types import PolicyManifest
from engram.learning.experience.eligibility import ABLATION, COVERED, OTHER, UNKNOWN
from engram.learning.experience.reader import EpisodeInfo
from engram.learning.experience.store import ExperienceStore
from engram.learning.live import RECENT, worse_than_before
from engram.learning.practised import Findings
from engram.learning.rewards.goal import kind_of
from engram.learning.weights.announcements import announced
from engram.learning.weights.gate_verdict import PROMOTE, REJECT, GateVerdict
from engram.learning.weights.library import REFUSED, UNREADABLE
from engram.learning.weights.manifest import sign
from engram.learning.weights.resends import Resends
from engram.learning.weights.slices import slice_size
from engram.learning.workspace import Workspace
from engram.runtime.curve_note import CURVE, Went, curve_note
from engram.runtime.experience_session import ExperienceOutputs, ExperienceSession
from engram.runtime.health import ERROR, LONGEST_TEXT, WARN, Health
from engram.runtime.parameters.learner import LearnerNodeConfig
from engram.runtime.policy_notes import DRIVING
from engram.runtime.promotions import NotYetError

NO_CANARY = "no canary: there is one robot"
BURST = 10
"""Updates between two looks at the store."""
SHOWN = 100
"""Newest goals that the diagnostics tell of."""


class LearnerOutputs(ExperienceOutputs, Protocol):
    """Where receipts and weights go."""

    def announce(self, data: bytes, manifest: PolicyManifest, signature: bytes) -> None:
        """Send weights with their manifest; ``signature`` is empty without a key. No ``data``: the manifest alone."""

    def send(self, data: bytes, manifest: PolicyManifest) -> None:
        """Send weights again whose manifest was sent before."""


class Verdicts(Protocol):
    """What the gate keeps of its verdicts."""

    @property
    def stamp(self) -> object:
        """Differs once there is another verdict."""

    def of(self, candidate: str, approved: str) -> GateVerdict | None:
        """Return the verdict on these two sha256 that holds here; None: there is none."""


class _StoppedError(Exception):
    pass


class LearnerSession(ExperienceSession):
    """Stores what robots send, trains on it, and keeps account of which weights drive.

    Args:
        config: the node's parameters.
        store: keeps the experience; it stays the caller's.
        workspace: trains on the experience of ``store``.
        key: signs manifests; None: they go unsigned.
        outputs: where receipts and weights go.
        health: where counters and problems are shown.
        proof: gets the sha256 of a candidate and of what drives; returns why the first may take over, or raises
            WeightsError. None: nothing can be proven.
        verdicts: of the gate; what it rejected is not learnt on from. None: nothing is known of them.
        wall_ns: tells the wall clock [ns].
        clock: tells the time that pauses are measured in [s].
    """

    def __init__(
        self,
        config: LearnerNodeConfig,
        store: ExperienceStore,
        workspace: Workspace,
        key: Ed25519PrivateKey | None,
        outputs: LearnerOutputs,
        health: Health,
        wall_ns: Callable[[], int] = time.time_ns,
        proof: Callable[[str, str], str] | None = None,
        verdicts: Verdicts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.learner, self.library, self.live = workspace.learner, workspace.library, workspace.live
        self._practised = workspace.practised
        self._refused: Findings | None = None  # what cannot be made part of the weights
        self._trouble = ""  # why
        self._due: tuple[bytes, PolicyManifest] | None = None  # a candidate that is not in the library yet
        self._untold: dict[str, tuple[bytes, PolicyManifest]] = {}  # by version: what is not announced yet, in order
        self._unannounced = ""
        self._resends, self._sent_again = Resends(clock), ""
        self._told: set[int] = set()  # episodes whose entry in the list is damaged
        self._unjudged = True  # whether episodes were counted after which nobody judged
        self._deciding = threading.Lock()  # the node and the training thread both change what drives
        super().__init__(store, outputs, health)
        self._config, self._key = config, key
        self._outputs, self._wall_ns, self._proof = outputs, wall_ns, proof
        self._verdicts = verdicts if config.promote != "auto" else None  # there every candidate drives, unasked
        self._heeded: object = None  # at what it was looked whether training comes from what drives
        self._went_back = ""  # to what, and why
        health.note("moved aside", workspace.moved_aside)
        self._saved = self.learner.metrics["updates"]
        self._unsaved = False  # whether a change is not durable of which who practises has to know

    def begin(self) -> None:
        """Announce what drives, if it is not what training began with or something was forgotten or refused.

        A robot that starts now shall drive what drove before; one that ran on leaves a forgotten candidate, and what
        was rolled back: the learner may have ended before it could say so.
        """
        super().begin()
        if not self.learner.metrics["updates"]:
            self.learner.save()  # who practises in simulation looks there for weights and pace
        with self._deciding:
            self._announce_what_drives()
            self._tell()  # what waited when the node was stopped
        self._due = self._forgotten()

    def _announce_what_drives(self) -> None:
        deployed, known = self.library.deployed, self.library.manifests()
        refused = any(one.stage in REFUSED for one in known.values())
        tried = {version for version, one in known.items() if one.stage == "canary"}
        for_all = next((at for at in reversed(range(len(deployed))) if deployed[at] not in tried), 0)
        if for_all or self.library.forgotten or refused:  # the robots that try no canary drive this
            self._announce(*self.library.get(deployed[for_all]))
        if deployed[-1] in tried:
            self._announce(*self.library.get(deployed[-1]))

    def _forgotten(self) -> tuple[bytes, PolicyManifest] | None:
        """Return the candidate that waited for its verdict when the learner ended: the library lets go of those.

        What was deployed without one does not come back.
        """
        made = self.learner.newest() if self._config.promote != "auto" else None
        readable = [version for version in self.library.versions if self.library.stage(version) != UNREADABLE]
        known = {self.library.manifest(version).sha256 for version in readable}
        return made if made is not None and made[1].sha256 not in known else None

    def end(self) -> None:
        """Make everything durable; the other threads have ended."""
        super().end()
        self.learner.save()

    def close(self) -> None:
        """Let the next one have the weights."""
        self.library.close()

    # -- training --------------------------------------------------------------------------------------------------

    def train(self, goes_on: Callable[[], bool]) -> None:
        """Look for new episodes and take a few updates, while ``goes_on``; announce a candidate that is due.

        Before, what drives now is rolled back if the new episodes show that it is worse on the robots. Each of these
        parts is carried out, whatever becomes of the others.

        Raises:
            Exception: what the first part that failed raised; all of them are problems in the diagnostics.
        """
        parts: dict[str, Callable[[], object]] = {
            "announcements that wait": self._tell_due,
            "training state that waits": self._save_due,
            "watch over what drives": self._watch,
            "weights that a robot lacks": self._send_again,
            "weights that training goes on from": self._heed,
            "candidate that waits": self._offer_due,
            "correction that practice found": lambda: self._take_correction(goes_on),
            "new episodes": self.learner.poll,
            "updates": lambda: self._update(goes_on),
        }
        failed = []
        for name, part in parts.items():
            try:
                part()
            except Exception as error:
                failed.append(error)
                level, words = (WARN, "") if isinstance(error, EngramError) else (ERROR, f"{type(error).__name__}: ")
                self._health.problem(name, f"{words}{error}", level)
        if failed:
            raise failed[0]

    def _offer_due(self) -> None:
        if self._due is not None:
            self._take_candidate(*self._due)
            self._save()

    def _save(self) -> None:
        """Make the training state durable: who practises goes on from there. What fails is tried again."""
        self._unsaved = True
        self.learner.save()
        self._unsaved, self._saved = False, self.learner.metrics["updates"]

    def _save_due(self) -> None:
        if self._unsaved:
            self._save()

    def _update(self, goes_on: Callable[[], bool]) -> None:
        for _ in range(BURST):
            if not goes_on():
                break
            with self._health.timed("update"):
                if self.learner.step() is None:
                    break
            self._health.count("updates")
        candidate = self.learner.candidate()
        if candidate is not None:
            self._take_candidate(*candidate)
        if self.learner.metrics["updates"] - self._saved >= self._config.save_every:
            self._save()

    def _take_correction(self, goes_on: Callable[[], bool]) -> None:
        """Make the corrections that practice found part of the weights; that takes some minutes."""

        def check() -> None:
            if not goes_on():
                raise _StoppedError

        try:
            findings = self._practised.findings()
            refusal = self._practised.refusal(findings) if findings is not None else ""
        except EngramError as error:
            self._trouble = str(error)
            return
        if findings is None or findings.number != self.learner.metrics["corrections"] + 1:
            self._trouble = ""
            return
        if refusal:
            self._trouble = f"{findings} was refused ({refusal})"
        if refusal or findings == self._refused:
            return
        try:
            with self._health.timed("correction"):
                candidate = self.learner.correct(*self._practised.episodes(findings), check)
        except _StoppedError:
            return
        except EngramError as error:
            self._refused, self._trouble = findings, str(error)
            return
        self._take_candidate(*candidate)
        self._save()

    # -- weights ---------------------------------------------------------------------------------------------------

    @property
    def driving(self) -> str:
        """The version that drives."""
        return self.library.current

    def promote(self, version: str, reason: str) -> str:
        """Let ``version`` ("" = the newest candidate) drive; return what proves it, or that nothing does.

        Raises:
            UnknownNameError: there is no such version.
            WeightsError: there is no candidate, it is damaged or too large to be sent, or it needs a proof and there
                is none.
            NotYetError: another version is a canary.
        """
        with self._deciding:
            version = version or self.library.newest()
            if not version:
                raise WeightsError("there is no candidate yet")
            slice_size(self.library.manifest(version), self._config.chunk_size)
            again = self._check_canary(version)
            proof = "no gate has judged it"
            if self._config.promote == "gated":
                proof = self._prove(version)
                reason = f"{reason}; {proof}"
            approved = version == self.library.current and self.library.stage(version) != "canary"
            wanted = bool(self._config.canary_episodes) and not approved
            canary = wanted and len(self._robots) > 1
            told = f"; {self._canary} alone tries it first" if canary else f"; {NO_CANARY}" if wanted else ""
            self._spare()
            told_of = self.library.approve(version, reason, canary=canary)
            if not (canary and again):  # else what the other robots drive would no longer be latched
                self._announce(*told_of)
            self.learner.promoted(version)
            return f"{version} drives now; {proof}{told}{self.unannounced}"

    def _check_canary(self, version: str) -> bool:
        """Return whether ``version`` is the canary; raises NotYetError if another version is."""
        drives = self.library.current
        if self.library.stage(drives) != "canary":
            return False
        if version != drives:
            ended, wanted = self.live.episodes(drives), self._config.canary_episodes
            raise NotYetError(
                f"{version} has to wait: {drives} is tried first, {ended} of {wanted} goals of {self._canary} have "
                f"ended, {max(0, wanted - ended)} are missing; a rollback ends it sooner"
            )
        return True

    def _spare(self) -> None:
        """Let the library keep what may be gone back to: what tells how it went, and what robots drive."""
        shown = self.live.shown(self.library.deployed)
        self.library.spared = {*shown.values(), *self._resends.driven.values()}

    def _prove(self, version: str) -> str:
        """Return what proves that ``version`` may drive in place of what drives now; raises WeightsError."""
        candidate, drives = self.library.get(version)[1], self.library.get(self.library.current)[1]
        if candidate.sha256 == drives.sha256:
            return "it drives already"
        if candidate.stage in ("rejected", "rolled_back"):
            raise WeightsError(f"{version}: {candidate.stage}, because {candidate.metrics.get('because', '')}")
        if self._proof is None:
            raise WeightsError(f"{version}: promote is 'gated', and this learner reads no verdicts of the gate")
        return self._proof(candidate.sha256, drives.sha256)

    def roll_back(self, version: str, reason: str) -> str:
        """Go back to ``version`` ("" = the one before) and return it; raises UnknownNameError or WeightsError."""
        with self._deciding:
            return self._roll_back(version, reason)

    def _roll_back(self, version: str, reason: str) -> str:
        data, manifest = self.library.roll_back(version, reason)
        self._announce(data, manifest)
        self.learner.promoted(manifest.version)
        return manifest.version

    def _watch(self) -> None:
        """Count new episodes; roll back what is worse on the robots, or let a canary drive them all."""
        found = self._store.catalogue(self.live.cursor)
        self._tell_unreadable()
        self._unjudged = self._unjudged or bool(found)
        for info in found:
            if not self._shows_version(info):
                continue
            try:  # what a person had to finish is no success of the version
                helped = info.success and any(step.intervention for step in self._store.episode(info.number))
            except StoreError as error:  # a damaged record: the episodes after it count all the same
                self._health.count("episodes unreadable")
                self._health.problem("experience", str(error))
                continue
            self.live.add(info.number, info.policy_version, kind_of(info.task), info.success, helped=helped)
            if info.policy_version:  # else a person drove at the end, or nobody
                with self._deciding:
                    self._resends.drove(info.robot_id, info.policy_version)
        if found:
            self.live.cursor = found[-1].number
        if not self._unjudged:
            return
        with self._deciding:
            self._judge_live()
        self.live.keep(self.library.kept)
        self.live.save()
        self._unjudged = False

    def _shows_version(self, info: EpisodeInfo) -> bool:
        """Tell whether an episode counts for the version that it names, or for none where no policy acted.

        It does not where that was spoilt or blindfolded, or called off; of a policy of another lineage, or of a robot
        that weights are not for, it is some other version.
        """
        named, reason = tuple(filter(None, self._config.weights_for)), self.learner.why_not(info)
        other = reason in (ABLATION, COVERED, OTHER) or (reason == UNKNOWN and info.policy_version)
        return bool(info.judged and not other and (not named or info.robot_id in named))

    def _tell_unreadable(self) -> None:
        """Count and show episodes whose entry in the list is damaged, each once."""
        for number, why in list(self._store.unreadable.items()):
            if number not in self._told:
                self._told.add(number)
                self._health.count("episodes unreadable")
                self._health.problem("experience", why)

    def _judge_live(self) -> None:
        deployed, config = self.library.deployed, self._config
        if len(deployed) < 2:
            return
        now, worse = deployed[-1], None
        shown = self.live.shown([version for version in deployed if version != now])
        if config.false_rollback:
            before = {task: self.live.of(version).get(task, "") for task, version in shown.items()}
            worse = worse_than_before(self.live.of(now), before, config.false_rollback)
        if worse is not None:
            task, words = worse
            reason = f"worse on the robots: {words}"
            if shown[task] != deployed[-2]:
                reason += f", as {now} has shown; {deployed[-2]} was tried too little to go back to it"
            target = self._roll_back(shown[task], reason)
            self._health.count("rollbacks")
            self._health.problem("rollback", f"{now} was rolled back to {target}: {reason}")
        elif self.library.stage(now) == "canary" and self.live.episodes(now) >= config.canary_episodes:
            because = self.library.get(now)[1].metrics.get("approved_because", "")
            self._announce(*self.library.approve(now, f"{because}; {self.live.episodes(now)} episodes as a canary"))

    def _heed(self) -> None:
        """Mark what the gate has judged. Where training came through weights that shall not drive, or does not come
        from those that do, it goes on from these."""
        with self._deciding:
            drives = self.library.manifest(self.library.current)
            stamp, line = self._verdicts.stamp if self._verdicts is not None else None, self.learner.line
            if (stamp, drives.version, line) == self._heeded:
                return
            refused = self._mark(drives, line)
            spoilt = next((version for version in line if version in refused), "")
            if spoilt or drives.version not in line:
                self._go_back(drives.version, spoilt, refused.get(spoilt, ""))
            self._heeded = stamp, drives.version, self.learner.line

    def _mark(self, drives: PolicyManifest, line: Mapping[str, str]) -> dict[str, str]:
        """Keep what the gate says of each candidate; return why each version that shall not drive shall not.

        A candidate that the library has let go of, at a restart, is judged all the same if training came through it.
        """
        known, refused = self.library.manifests(), dict[str, str]()
        candidates = {version: one.sha256 for version, one in known.items() if one.stage == "candidate"}
        for version, one in known.items():
            if one.stage in REFUSED and version != drives.version:
                refused[version] = str(one.metrics.get("because", one.stage))
        for version, sha256 in (candidates | {one: line[one] for one in line if one not in known}).items():
            verdict = self._verdicts.of(sha256, drives.sha256) if self._verdicts is not None else None
            if verdict is None or verdict.decision == PROMOTE:
                continue
            because = f"the gate: {verdict.decision}, {verdict.reason}"
            if verdict.decision == REJECT:
                refused[version] = because
            if version in known and known[version].metrics.get("because") != because:
                self._tell_verdict(version, because, rejected=verdict.decision == REJECT)
        return refused

    def _tell_verdict(self, version: str, because: str, *, rejected: bool) -> None:
        marked = self.library.mark(version, "rejected" if rejected else "candidate", because)
        self._health.count(f"candidates {'rejected' if rejected else 'not shown'}")
        if rejected:  # else the gate would hear of a candidate again
            self._announce(b"", marked)

    def _go_back(self, version: str, spoilt: str, why: str) -> None:
        """Learn on from ``version``, which drives. What practice found and ``spoilt`` has is refused, and ``why``."""
        (data, manifest), known = self.library.get(version), self.library.manifests()
        findings, has = self._practised.findings(), known[spoilt].metrics if spoilt in known else self.learner.metrics
        if spoilt and findings is not None and _corrections(manifest.metrics) < findings.number <= _corrections(has):
            self._practised.refuse(findings, why)  # first: who is killed now does it again
        self.learner.go_back(data, manifest)
        self._due = None  # it came of what is left
        self._went_back = f"to {version}" + (f", because of {spoilt}: {why}" if spoilt else "")
        self._save()

    def _take_candidate(self, data: bytes, manifest: PolicyManifest) -> None:
        with self._deciding:
            self._add_candidate(data, manifest)

    def _add_candidate(self, data: bytes, manifest: PolicyManifest) -> None:
        self._due, self._heeded = (data, manifest), None  # until it is kept: a disk may be full
        alone = self.library.stage(self.library.current) != "canary"
        drives = self._config.promote == "auto" and alone and self._can_be_sent(manifest)
        self.library.add(data, manifest)
        if drives:  # it stays a candidate: a robot that takes only approved weights refuses it
            self._spare()
            self.library.deploy(manifest.version)
            self.learner.promoted(manifest.version)
        self._due = None
        self._health.count("candidates")
        # Unless they may drive at once the weights stay here: in simulation a policy node lets any that it gets drive.
        self._announce(data if drives else b"", manifest)

    def _can_be_sent(self, manifest: PolicyManifest) -> bool:
        try:
            slice_size(manifest, self._config.chunk_size)
        except WeightsError as error:
            self._health.problem("candidate", str(error), ERROR)
            return False
        return True

    def _announce(self, data: bytes, manifest: PolicyManifest) -> None:
        """Tell robots and gate what the library says already; what cannot be told now is told later."""
        self._untold.pop(manifest.version, None)
        if data:  # it drives in place of what was to drive; beside a canary the other robots go on with that
            canary = manifest.stage == "canary"
            stays = {v: not one[0] or (canary and one[1].stage != "canary") for v, one in self._untold.items()}
            self._untold = {version: one for version, one in self._untold.items() if stays[version]}
        self._untold[manifest.version] = data, manifest
        self._tell()

    def _tell(self) -> None:
        """Announce what waits for it, in order, until that fails."""
        for version, (data, manifest) in list(self._untold.items()):
            try:
                robots = (self._canary,) if manifest.stage == "canary" else self._robots
                told = announced(manifest, robots, self.library.announcements.next(self._wall_ns()))
                self._outputs.announce(data, told, sign(told, self._key) if self._key is not None else b"")
                if data:
                    self._resends.announced(told)
            except (OSError, EngramError) as error:
                why = f"not announced yet, which is tried again: {', '.join(self._untold)} ({error})"
                self._unannounced = f"; {why}"
                self._health.problem("announcement", why, ERROR, lasting=True)
                return
            del self._untold[version]
        self._unannounced = ""
        self._health.clear("announcement")

    def _tell_due(self) -> None:
        with self._deciding:
            if self._untold:
                self._tell()

    def _send_again(self) -> None:
        """Send the slices again of what was announced to a robot that still drives something else."""
        with self._deciding:
            version, why = ("", "") if self._untold else self._resends.next()
            if version:
                self._outputs.send(*self.library.get(version))
                self._health.count("weights sent again")
                self._sent_again = f"{version}, as {why}"

    @property
    def unannounced(self) -> str:
        """What robots have not been told of yet, and why, to be added to an answer; empty: they know everything."""
        return self._unannounced

    @property
    def _robots(self) -> tuple[str, ...]:
        """Whom weights are for: those of ``weights_for``, else the learner's own and all that send experience."""
        own = self._config.robot_id
        return tuple(filter(None, self._config.weights_for)) or tuple(dict.fromkeys((own, *self._store.robots())))

    @property
    def _canary(self) -> str:
        """Who tries first what is promoted: the first of ``weights_for``, else the first that worked lately."""
        lately = () if any(self._config.weights_for) else self._store.robots(RECENT)
        return next((robot for robot in self._robots if robot in lately), self._robots[0])

    def _canary_words(self) -> str:
        drives, robots = self.library.current, self._robots
        if len(robots) < 2:
            return f"{NO_CANARY}, {robots[0]}"
        if self.library.stage(drives) != "canary":
            return f"{self._canary} tries first what is promoted, of {', '.join(robots)}"
        ended = f"{self.live.episodes(drives)} of {self._config.canary_episodes} goals"
        return f"{self._canary} alone drives {drives}: {ended}"

    def show(self) -> None:
        """Show what was learnt, and from what not."""
        note = self._health.note
        for name, value in self.learner.metrics.items():
            note(f"learner {name}", f"{value:.4g}" if isinstance(value, float) else str(value))
        note("trains", f"on {teaches}" if (teaches := self.learner.teaches)[:7] != "nothing" else teaches)
        for what, how in self.learner.changed.items():
            note(f"changed since the last start: {what}", how)
        for reason, count in self.learner.passed_over.items():
            note(f"episodes not learnt from: {reason}", str(count))
        for reason, count in self.learner.earlier_passed_over.items():
            note(f"episodes not learnt from: {reason}, in earlier experiments", str(count))
        note("newest episode of another shape", self.learner.misfit[:LONGEST_TEXT])
        note("newest episode with numbers out of range", self.learner.strange[:LONGEST_TEXT])
        note("newest episode of weights too far behind", self.learner.stale)
        lags = (f"{robot} {updates}" for robot, updates in self.learner.lags.items())
        note("updates behind what drives", ", ".join(lags))
        note("what practice found is not learnt", self._trouble)
        note("training went back", self._went_back)
        note("newest weights that were sent again", self._sent_again)
        super().show()
        note("lineage", str(self.learner.lineage))
        note(DRIVING, self.library.current)
        if self._config.canary_episodes:
            note("canary", self._canary_words())
        note(CURVE, curve_note(Went(*one) for one in list(self.live.recent)[-SHOWN:]))
        for task, outcomes in self.live.of(self.library.current).items():
            note(f"live {task}", f"{outcomes.count('1')} of {len(outcomes)}")


def _corrections(metrics: Mapping[str, Any]) -> int:
    """Return how many corrections are part of weights with these metrics."""
    return int(metrics.get("corrections", 0))
