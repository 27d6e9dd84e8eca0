"""What judges by the policy's features in the policy node."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import CANNOT_TELL, Features, Observation, Verdict
from engram.learning.rewards.contract import RewardSource
from engram.runtime.policy_judge import PolicyJudge
from engram.runtime.policy_runner import PolicyStep
from tests.core.frames import camera_frame
from tests.core.gantry import joints
from tests.ros.policies import Counts, EyesAndNoise


class Hears(RewardSource):
    """Keeps what it was told."""

    name = "hears"

    def __init__(self):
        self.words, self.seen = [], []

    def begin(self, instruction):
        self.words.append(instruction)

    def judge(self, moment):
        self.seen.append(moment.features)
        return Verdict(moment.stamp_ns, moment.episode, self.name, CANNOT_TELL)


def step(stamp_ns, episode, words):
    cameras = {"front": camera_frame(stamp_ns)}
    return PolicyStep(Observation(stamp_ns, cameras, joints(stamp_ns=stamp_ns)), episode, words)


def test_each_goal_begins_anew_and_is_judged_by_what_drives_then():
    source, counts = Hears(), Counts()
    drives = [counts]
    judge = PolicyJudge(source, lambda: drives[0])
    counts.reset("go")
    for stamp, (episode, words) in enumerate([(1, "go"), (1, "go"), (1, "stop"), (2, "stop")], 1):
        now = step(stamp * 10**8, episode, words)
        counts.observe(now.observation)
        told = judge.judge(now)
        assert (told.stamp_ns, told.episode) == (stamp * 10**8, episode)
    assert source.words == ["go", "stop", "stop"]
    assert [one.values.tolist() for one in source.seen] == [[1.0], [2.0], [3.0], [4.0]]
    assert isinstance(source.seen[0], Features) and source.seen[0].values.dtype == np.float32
    drives[0] = EyesAndNoise()
    judge.judge(step(10**9, 2, "stop"))
    assert source.seen[-1] is None


def test_a_folder_without_a_classifier_is_named_and_no_folder_is_no_judge(tmp_path):
    assert PolicyJudge.open(("",), EyesAndNoise) is None
    with pytest.raises(InvalidInputError, match=f"success_classifiers: {tmp_path}: no success classifier"):
        PolicyJudge.open((str(tmp_path),), EyesAndNoise)
