"""What a success classifier learns from labelled goals, and when it says that it cannot tell."""

import json
import math

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, Features
from engram.learning.rewards import success_classifier
from engram.learning.rewards.contract import Moment
from engram.learning.rewards.success_classifier import (
    CARD,
    LEAST,
    LOOKS,
    SHOWN,
    UNCLEAR,
    WEIGHTS,
    ClassifierConfig,
    ClassifierVerdict,
    Clip,
    LabelledEpisode,
    SuccessClassifier,
    figures_of,
    form_of,
    verdict_on,
)

QUICK = ClassifierConfig(members=2, width=16, updates=300)
WORDS = "catch the red cube as it leaves the tunnel"


def goal(success: bool, seed: int, words: str = WORDS) -> LabelledEpisode:
    """Return a goal of 40 steps whose first feature goes from 0 to 1, and on to 2 once it is reached."""
    rng = np.random.default_rng(seed)
    way = np.linspace(0.0, 1.0 if success else 0.5, 40)
    features = rng.normal(0.0, 0.05, (40, 6))
    features[:, 0] += way + (np.arange(40) >= 40 - SHOWN) * success
    return LabelledEpisode(words, features.astype(np.float32), success)


@pytest.fixture(scope="module")
def learnt() -> SuccessClassifier:
    return SuccessClassifier.fit("eyes", [goal(seed % 2 == 0, seed) for seed in range(24)], QUICK)


def moment(features=None, encoder="eyes") -> Moment:
    seen = None if features is None else Features(encoder, features.astype(np.float32))
    return Moment(10**9, 7, features=seen)


def begun(learnt, words=WORDS) -> ClassifierVerdict:
    source = ClassifierVerdict([learnt])
    source.begin(words)
    return source


def test_goals_that_it_never_saw_are_judged_right_and_so_are_the_figures_that_it_tells(learnt):
    for seed in range(100, 110):
        one = goal(seed % 2 == 0, seed)
        assert verdict_on(learnt.judge(one.features)[:, 0]) == (CONFIRMED if one.success else DENIED)
    figures = learnt.figures
    assert (figures["right"]["rate"], figures["right"]["n"]) == (1.0, 24)
    assert (figures["false_success"]["successes"], figures["false_success"]["n"]) == (0, 12)
    assert figures["missed"]["successes"] == figures["not_told"]["successes"] == 0


def test_where_nothing_is_told_no_share_of_it_is_right_or_wrong():
    figures = figures_of([CANNOT_TELL] * 8, [True] * 4 + [False] * 4)
    assert figures["right"] is None
    assert (figures["missed"]["rate"], figures["missed"]["n"], figures["not_told"]["rate"]) == (0.0, 4, 1.0)


def test_its_figures_are_of_goals_that_it_did_not_learn_from():
    rng = np.random.default_rng(0)  # labels that nothing tells: whoever had seen them would know them by heart
    told_by_nothing = [
        LabelledEpisode(WORDS, rng.normal(size=(10, 40)).astype(np.float32), seed % 2 == 0) for seed in range(24)
    ]
    figures = SuccessClassifier.fit("eyes", told_by_nothing, QUICK).figures
    assert figures["right"]["rate"] < 0.9


def test_the_progress_grows_on_the_way_and_falls_on_the_way_back(learnt):
    way = learnt.judge(goal(True, 200).features[:-SHOWN])[:, 1]
    assert np.corrcoef(way, np.arange(len(way)))[0, 1] > 0.9
    assert way[0] < 0.3 and way[-1] > 0.7


def timed(success: bool, seed: int, order: np.ndarray | None = None) -> np.ndarray:
    """Return what is seen of a goal of 40 steps in ``order``: the time, without noise, and the way that it has come."""
    rng = np.random.default_rng(seed)
    order = np.arange(40) if order is None else order
    way = np.linspace(0.0, 1.0 if success else 0.5, 40)[order]
    seen = np.stack((np.arange(len(order)) / 40, way + (order >= 40 - SHOWN) * success), axis=1)
    return (seen + rng.normal(0.0, (0.0, 0.06), seen.shape)).astype(np.float32)


def trained(goals) -> SuccessClassifier:
    """Return a classifier that was not cross-validated."""
    return SuccessClassifier("eyes", [WORDS], success_classifier._trained(goals, QUICK, 0), {})


def test_with_clips_a_goal_that_stands_still_gains_nothing_and_one_that_goes_back_loses():
    def one(seed, clipped):
        turn, success = int(np.random.default_rng(seed).integers(5, 35)), seed % 2 == 0
        orders = (np.full(40, turn), np.arange(turn, 0, -1)) if success and clipped else ()
        clips = (Clip(timed(True, 50 + seed, np.r_[np.arange(turn), order])[turn:], order) for order in orders)
        return LabelledEpisode(WORDS, timed(success, seed), success, tuple(clips))

    gained = {}
    for clipped in (False, True):
        learnt = trained([one(seed, clipped) for seed in range(24)])
        stands, goes_back = np.r_[np.arange(21), np.full(19, 20)], np.r_[np.arange(25), np.arange(24, 2, -1)]
        ways = [
            np.mean([learnt.judge(timed(True, 300 + seed, order))[:, 1] for seed in range(5)], axis=0)
            for order in (stands, goes_back)
        ]
        gained[clipped] = [float(way[-5:].mean() - way[20:25].mean()) for way in ways]
    assert gained[False][0] > 0.14 > 0.07 > abs(gained[True][0])
    assert gained[True][1] < -0.15 < 0.0 < gained[False][1]


def test_what_is_carried_out_under_other_words_reaches_nothing():
    def said(seed, right):
        return np.concatenate((goal(True, seed).features, np.full((40, 1), float(right), np.float32)), axis=1)

    def goals(clipped):
        for seed in range(24):
            clips = (Clip(said(50 + seed, False), np.arange(40), wanted=False),) if clipped else ()
            one = goal(seed % 2 == 0, seed)
            features = np.concatenate((one.features, np.ones((40, 1), np.float32)), axis=1)
            yield LabelledEpisode(WORDS, features, one.success, clips if one.success else ())

    for clipped, told, most in ((True, DENIED, 0.1), (False, CONFIRMED, 1.0)):
        learnt = trained(list(goals(clipped)))
        learnt.network.low[-1] = -1.0  # else it has seen nothing like this
        rows = learnt.judge(said(400, False))
        assert verdict_on(rows[:, 0]) == told and rows[-1, 1] <= most
        assert verdict_on(learnt.judge(said(401, True))[:, 0]) == CONFIRMED


def test_a_step_of_a_clip_is_what_it_shows_and_what_is_undone_or_not_remembered_is_left_open():
    n = 20
    undone, stays = np.arange(n - 1, 3, -1), np.full(3, n - 1)
    clips = (Clip(np.zeros((len(order), 1)), order) for order in (undone, stays))
    late, unwanted = Clip(np.zeros((3, 1)), stays, late=True), Clip(np.zeros((n, 1)), np.arange(n), wanted=False)
    one = LabelledEpisode(WORDS, np.zeros((n, 1)), True, (*clips, late, unwanted))
    _, *parts = success_classifier._labelled(one)
    (_, done, clear, progress), (_, done_s, clear_s, progress_s), (_, _, clear_l, progress_l), wrong = parts
    assert not done.any() and clear.tolist() == [False] * (SHOWN + UNCLEAR) + [True] * (n - 4 - SHOWN - UNCLEAR)
    assert progress.tolist() == pytest.approx((undone / (n - 1)).tolist())
    assert done_s.all() and clear_s.all() and progress_s.tolist() == progress_l.tolist() == [1.0] * 3
    assert not clear_l.any()
    assert not wrong[1].any() and wrong[2].all() and not wrong[3].any()


def test_clips_stay_with_their_goal_when_it_is_judged_by_who_never_saw_it():
    rng = np.random.default_rng(0)

    def told_by_nothing(seed):
        features = rng.normal(size=(10, 40)).astype(np.float32)
        whole = Clip(features, np.arange(10))  # elsewhere it would tell how this very goal ended
        return LabelledEpisode(WORDS, features, seed % 2 == 0, (whole,) if seed % 2 == 0 else ())

    assert (
        SuccessClassifier.fit("eyes", [told_by_nothing(seed) for seed in range(24)], QUICK).figures["right"]["rate"]
        < 0.9
    )


def test_a_clip_is_nothing_that_happened_and_what_is_like_it_stays_strange():
    far = Clip(np.full((40, 6), 9.0, np.float32), np.arange(40))
    goals = [goal(seed % 2 == 0, seed) for seed in range(12)]
    goals = [LabelledEpisode(one.words, one.features, one.success, (far,) if one.success else ()) for one in goals]
    assert np.isnan(trained(goals).judge(far.features)).all()


def test_one_step_that_looks_done_is_no_success(learnt):
    one = goal(False, 300).features.copy()
    for step in range(LOOKS - 1):
        one[10 + step, 0] = 2.0
    assert verdict_on(learnt.judge(one)[:, 0]) == DENIED
    one[10 + LOOKS - 1, 0] = 2.0
    assert verdict_on(learnt.judge(one)[:, 0]) == CONFIRMED


def test_it_says_what_it_cannot_tell_and_why(learnt):
    done, other = goal(True, 400).features[-1], np.full(6, 50.0)
    source = begun(learnt)
    told = source.judge(moment(done))
    assert (told.outcome, told.progress, told.source) == (CONFIRMED, 1.0, "classifier")
    assert source.judge(moment(goal(True, 400).features[0])).outcome == DENIED
    for unlike in (other, np.full(6, np.nan)):
        told = source.judge(moment(unlike))
        assert (told.outcome, told.reason) == (CANNOT_TELL, "it has seen nothing like this")
    assert "offers no features" in source.judge(moment()).reason
    assert "another encoder" in source.judge(moment(done, encoder="other eyes")).reason
    assert begun(learnt, "dance").judge(moment(done)).reason == "no classifier has learnt 'dance'"
    assert math.isnan(begun(learnt, "dance").judge(moment(done)).probability)


def test_goals_that_differ_in_a_coloured_thing_are_judged_alike(learnt):
    assert form_of("Touch the  blue cup in the dark.") == form_of("touch the red button in the dark")
    assert form_of("put the cube in the bin") != form_of("put the cube in the drawer")
    source = ClassifierVerdict([learnt])
    assert source.knows("catch the green cube as it leaves the tunnel") and not source.knows("catch the cube")


def test_what_was_learnt_outlives_the_process_and_damage_is_found(learnt, tmp_path):
    learnt.save(tmp_path)
    again = SuccessClassifier.load(tmp_path)
    rows = goal(True, 500).features
    assert np.array_equal(again.judge(rows), learnt.judge(rows))
    assert (again.encoder, again.forms, again.figures) == (learnt.encoder, learnt.forms, learnt.figures)
    whole = (tmp_path / WEIGHTS).read_bytes()
    for damage in (whole[:-8], b"", whole[:-4] + b"\xff\xff\xff\x7f"):
        (tmp_path / WEIGHTS).write_bytes(damage)
        with pytest.raises(StoreError, match="no success classifier of engram classifier"):
            SuccessClassifier.load(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(whole)
    card = json.loads((tmp_path / CARD).read_text())
    (tmp_path / CARD).write_text(json.dumps(card | {"network": {"inputs": 7, "width": 16, "members": 2}}))
    with pytest.raises(StoreError):
        SuccessClassifier.load(tmp_path)


@pytest.mark.parametrize(("success", "what"), [(True, "reached"), (False, "missed")])
def test_too_few_goals_of_an_outcome_are_refused(success, what):
    goals = [goal(success, seed) for seed in range(LEAST - 1)] + [goal(not success, seed) for seed in range(9)]
    with pytest.raises(InvalidInputError, match=f"3 goals that were {what}, expected at least 4"):
        SuccessClassifier.fit("eyes", goals, QUICK)
