"""Pace and size of the learning, and which settings an algorithm can take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engram.core.errors import CannotTrainError, InvalidInputError
from engram.learning.algorithms import Algorithm
from engram.learning.replay.buffer import ReplayConfig


@dataclass(frozen=True)
class LearnerConfig:
    """Pace and size of the learning."""

    updates_per_episode: int = 40
    """Updates that each new episode to learn from pays for, so that learning keeps step with experience: a success, or,
    for algorithms with critics, a failure, too. 0: nothing is imitated."""
    batch_size: int = 32
    """Control steps in an update."""
    window: int = 16
    """Only for a policy with a memory of its episode: an update takes this many consecutive steps from each of
    batch_size // window episodes."""
    first_episodes: int = 5
    """Successes to wait for before the first update."""
    candidate_updates: int = 100
    """Updates between two candidates; 0: there are none but corrections."""
    imitate_own: bool = False
    """Imitate also the successes in which the policy acted alone and without noise. They show only what it does anyhow,
    so that it hardly changes."""
    most_behind: int = 0
    """Updates by which the weights that acted may be behind the newest that drive; what older ones did is passed over.
    0: no limit, so that robots that were offline teach all the same."""
    seed: int = 0
    """Seed of the samples and of everything random in the updates."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)

    def __post_init__(self) -> None:
        least = {"updates_per_episode": 0, "batch_size": 1, "window": 1, "first_episodes": 0, "candidate_updates": 0}
        for name, lowest in {**least, "most_behind": 0, "seed": 0}.items():
            if getattr(self, name) < lowest:
                raise InvalidInputError(f"LearnerConfig.{name}: {getattr(self, name)}, expected {lowest} or more")
        if self.replay.seed < 0:
            raise InvalidInputError(f"LearnerConfig.replay.seed: {self.replay.seed}, expected 0 or more")


def check_paid(algorithm: Algorithm, config: LearnerConfig) -> None:
    """Raise CannotTrainError where episodes pay for updates that ``algorithm`` cannot take."""
    if algorithm.frozen and config.updates_per_episode:
        raise CannotTrainError(
            f"LearnerConfig.updates_per_episode: {config.updates_per_episode}: {algorithm.frozen}; expected 0"
        )


def check_shares(algorithm: Algorithm, config: LearnerConfig) -> None:
    """Raise InvalidInputError for parts of a batch that ``algorithm`` cannot have, or that nothing is drawn from."""
    replay = config.replay
    if replay.experiments and (algorithm.frozen or not config.updates_per_episode):
        raise InvalidInputError(
            f"LearnerConfig.replay.earlier: {', '.join(replay.experiments)}: nothing is drawn from these: "
            f"{algorithm.frozen or 'updates_per_episode is 0'}; expected none"
        )
    for name in ("share_successes", "share_failures", "share_person"):
        value = getattr(replay, name)
        if value and algorithm.whole_replay:
            raise InvalidInputError(
                f"LearnerConfig.replay.{name}: {value}: {type(algorithm).__name__} takes all episodes, and draws by "
                "itself; expected 0"
            )
    if replay.share_failures and not algorithm.learns_from_failures:
        raise InvalidInputError(
            f"LearnerConfig.replay.share_failures: {replay.share_failures}: {type(algorithm).__name__} learns from no "
            "failure; expected 0"
        )


def with_chunk(config: LearnerConfig, chunk_steps: int) -> LearnerConfig:
    """Return ``config`` with chunks as long as the policy's; 0: as it says."""
    return replace(config, replay=replace(config.replay, chunk_size=chunk_steps)) if chunk_steps else config
