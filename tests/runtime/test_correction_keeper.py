"""Which correction drives a goal, and what is learnt from how it ended."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from engram.core.durable import seal, unseal
from engram.core.motion_correction import MotionCorrection
from engram.runtime import correction_keeper
from engram.runtime.correction_keeper import FILE, PLAIN, WINDOW, CorrectionKeeper, Searched

NONE = MotionCorrection()
GOOD = {"found": {}, "trials": [], "past": [], "recent": [], "plain": [], "breaches": 0}
"""What is kept of a kind of goals of which nothing is known."""
IN = "in"
PICK, STACK = "put the red cube in the bin", "stack the red cube on the blue cube"


def kept_in(folder):
    return unseal((folder / FILE).read_bytes())


def practise(keeper, goals, best, words=PICK, version="v0", first=1):
    """Carry out goals that succeed the more often, the nearer the corrected motion is to ``best``; return the tried."""
    luck, tried = np.random.default_rng(first), []
    for episode in range(first, first + goals):
        tried.append(keeper.begin(episode, words, version))
        off = np.array([np.log(tried[-1].scale) - np.log(best.scale), tried[-1].yaw_rad - best.yaw_rad])
        miss = (off**2 / np.array([0.09, 0.03])).sum() + ((tried[-1].shift - best.shift) ** 2 / 0.0025).sum()
        success = luck.random() < 0.95 * np.exp(-0.5 * miss)
        keeper.tell(episode, float(success))
    return tried


def test_what_helps_is_found_goal_by_goal_and_drives_then_also_in_another_process(tmp_path):
    keeper, best = CorrectionKeeper(tmp_path, "search", 50), MotionCorrection(1.0, 0.35)
    assert keeper.said == "nothing"
    practise(keeper, 100, best)
    found = CorrectionKeeper(tmp_path, "found", 50)
    drives = found.begin(1, PICK, "v0")
    assert abs(drives.yaw_rad - 0.35) < 0.16 and 0.7 < drives.scale < 1.4
    assert found.said == f"motions {drives}" and "turned by" in found.said
    before = (tmp_path / FILE).read_bytes()
    found.tell(1, 0.0)  # no search: nothing is learnt
    assert (tmp_path / FILE).read_bytes() == before
    assert found.begin(2, "stack the red cube on the blue one", "v0") == NONE  # another kind of goal
    assert found.begin(3, "put the green ball in the bowl", "v0") == drives  # the same kind
    assert found.begin(4, PICK, "v1") == NONE  # other weights


def test_a_search_goes_on_in_another_process_with_what_it_would_have_tried(tmp_path):
    best = MotionCorrection(0.6)
    whole = practise(CorrectionKeeper(tmp_path / "a", "search", 20), 12, best)
    first = practise(CorrectionKeeper(tmp_path / "b", "search", 20), 7, best)
    again = CorrectionKeeper(tmp_path / "b", "search", 20)
    assert again.begin(7 + 1, PICK, "v0") == whole[7]  # a goal that never ended is tried again
    assert first == whole[:7] and len({*whole}) > 3
    assert "(7 goals tried)" in again.said


def test_a_search_first_drives_without_a_correction_and_keeps_to_its_margin(tmp_path):
    """Only what is not corrected succeeds: other corrections are tried as seldom as the margin allows."""

    def corrected(margin, goals=100):
        keeper = CorrectionKeeper(None, "search", 1000, margin)
        tried, outcomes = [], []
        for episode in range(goals):
            tried.append(keeper.begin(episode, PICK, "v0") != NONE)
            outcomes.append(float(not tried[-1]))
            keeper.tell(episode, outcomes[-1])
        assert not any(tried[: correction_keeper.PLAIN])
        means = np.convolve(outcomes, np.ones(WINDOW) / WINDOW, "valid")
        return sum(tried), means.min(), keeper.said

    most, _, said = corrected(1.0)
    assert 0 < corrected(0.1)[0] <= 10 and corrected(0.1)[1] >= 0.9 - 1e-9  # at most two of twenty
    assert corrected(0.1)[0] < most and "below" not in said
    assert corrected(0.0)[0] == 0


def test_goals_below_the_margin_are_counted(tmp_path):
    keeper = CorrectionKeeper(tmp_path, "search", 1000, 0.0)  # nothing is tried
    for episode in range(40):
        keeper.begin(episode, PICK, "v0")
        keeper.tell(episode, float(episode < 20))
    again = CorrectionKeeper(tmp_path, "search", 1000, 0.0)
    again.begin(40, PICK, "v0")
    assert again.said.endswith("(40 goals tried)")  # those without a trial became as bad: no search is to blame
    blamed = CorrectionKeeper(None, "search", 1000, 1.0)
    for episode in range(60):
        tried = blamed.begin(episode, PICK, "v0")
        blamed.tell(episode, float(tried == NONE))
    blamed._margin = 0.2
    for episode in range(60, 90):
        blamed._begun[episode] = f"v0: {IN}", MotionCorrection(scale=2.0)  # trials that the margin would not allow
        blamed.tell(episode, 0.0)
    blamed.begin(90, PICK, "v0")
    assert "below the margin" in blamed.said


def test_what_was_tried_at_one_kind_of_goal_tells_of_another():
    best = MotionCorrection(0.55)

    def near(version, seed):
        """Return how many of the first ten trials at a second kind of goal are near what helped at a first one."""
        keeper = CorrectionKeeper(None, "search", 1000, seed=seed)
        practise(keeper, 60, best, version=version, first=1 + 100 * seed)
        tried = practise(keeper, PLAIN + 10, best, words=STACK, first=1000)
        return sum(0.45 < one.scale < 0.7 for one in tried)

    told, other = (sum(near(version, seed) for seed in range(5)) for version in ("v0", "v1"))
    assert told > 35 and told > other + 15  # what other weights did says nothing of these


def test_the_trials_of_a_search_that_found_something_go_on_telling_of_other_kinds(tmp_path):
    best, keeper = MotionCorrection(0.55), CorrectionKeeper(tmp_path, "search", 50)
    first = 0
    while keeper.begin(first, PICK, "v0") and not keeper._known.get("v0: in", Searched()).past:
        practise(keeper, 1, best, first=(first := first + 1))
    assert keeper._known["v0: in"].found.scale < 0.8 and not keeper._known["v0: in"].trials
    again = CorrectionKeeper(tmp_path, "search", 50)
    fresh = CorrectionKeeper(None, "search", 50)
    near = [
        sum(0.4 < one.scale < 0.75 for one in practise(each, PLAIN + 10, best, words=STACK, first=1000))
        for each in (again, fresh)
    ]
    assert near[0] >= 5 and near[0] > near[1]


def test_what_was_as_good_long_ago_does_not_hold_a_search_up():
    """After 40 goals that all went well the robot changes, and nothing does."""
    keeper, tried = CorrectionKeeper(None, "search", 1000, 0.2), []
    for episode in range(120):
        keeper.begin(episode, PICK, "v0")
        keeper._begun[episode] = ("v0: in", NONE) if episode < 40 else keeper._begun[episode]
        tried.append(keeper._begun[episode][1] != NONE)
        keeper.tell(episode, float(episode < 40))
    assert sum(tried[60:]) > 40


def test_a_search_that_finds_nothing_sure_goes_on(tmp_path):
    keeper = CorrectionKeeper(tmp_path, "search", 5)
    for episode in range(10):
        keeper.begin(episode, PICK, "v0")
        keeper.tell(episode, 0.0)
    (known,) = kept_in(tmp_path).values()
    assert known["found"] == asdict(NONE) and sum(times for *_, times, _ in known["trials"]) == 10


def test_what_is_kept_does_not_grow_with_the_goals(tmp_path, monkeypatch):
    monkeypatch.setattr(correction_keeper, "KEPT", 3)
    keeper = CorrectionKeeper(tmp_path, "search", 1000)
    for episode in range(100):
        keeper.begin(episode, PICK, "v0")
        keeper.tell(episode, 0.0)
    (known,) = kept_in(tmp_path).values()
    assert len(known["trials"]) <= 49 and sum(times for *_, times, _ in known["trials"]) == 100
    for version in ("v1", "v2", "v0", "v3", "v4"):  # v1 and v2 are the oldest then
        keeper.begin(1, PICK, version)
        keeper.tell(1, 0.0)
    assert list(kept_in(tmp_path)) == [f"{version}: in" for version in ("v0", "v3", "v4")]
    assert "(101 goals tried)" in _said(tmp_path)


def _said(folder):
    again = CorrectionKeeper(folder, "search", 1000)
    again.begin(1, PICK, "v0")
    return again.said


def test_what_is_told_of_a_goal_that_did_not_begin_here_counts_for_nothing(tmp_path):
    keeper = CorrectionKeeper(tmp_path, "search", 5)
    keeper.tell(3, 1.0)
    assert not (tmp_path / FILE).exists()


def test_without_corrections_nothing_is_read_or_written(tmp_path):
    (tmp_path / FILE).write_text("{")
    keeper = CorrectionKeeper(tmp_path, "none", 5)
    assert (keeper.begin(1, PICK, "v0"), keeper.said) == (NONE, "nothing")
    keeper.tell(1, 1.0)
    assert (tmp_path / FILE).read_text() == "{"


DAMAGED = [
    *(b"", b"{", b"[]", b'{"a": 1}', b"[" * 100_000, json.dumps({"v0: in": GOOD}).encode()),
    seal([]),
    *(
        seal({"v0: in": GOOD | wrong})
        for wrong in (
            {"found": {"scale": float("nan")}},
            {"found": {"scale": 20.0}},
            {"found": {"yaw_rad": 3.35}},
            {"found": {"shift_x": 8.0}},
            {"found": {"size": 1.0}},
            {"found": [1]},
            {"trials": [[{}, 1, 7]]},
            {"trials": [[{"scale": -1}, 1, 1]]},
            {"trials": [[{}, 0, 1]]},
            {"past": [[{}]]},
            {"past": [[{"scale": "x"}, []]]},
            {"recent": [2.0]},
            {"recent": None},
            {"plain": [float("nan")]},
            {"breaches": -1},
            {"breaches": float("inf")},
        )
    ),
]


@pytest.mark.parametrize("mode", ["found", "search"])
@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_named_and_set_aside_and_nothing_of_it_drives(tmp_path, data, mode):
    (tmp_path / FILE).write_bytes(data)
    problems = []
    keeper = CorrectionKeeper(tmp_path, mode, 5, on_problem=problems.append)
    (aside,) = tmp_path.glob("set-aside-*")
    (problem,) = problems
    assert f"{tmp_path / FILE} cannot be read" in problem and str(aside) in problem and keeper.said == problem
    assert keeper.begin(1, PICK, "v0") == NONE
    keeper.tell(1, 1.0)  # a search begins anew
    assert (aside / FILE).read_bytes() == data
    again = CorrectionKeeper(tmp_path, mode, 5, on_problem=problems.append)
    assert len(problems) == 1 and list(again._known) == (["v0: in"] if mode == "search" else [])


def test_a_digit_that_the_disk_has_changed_turns_no_motion(tmp_path):
    """The numbers stay within what a correction may be: only the checksum tells."""
    found = GOOD | {"found": asdict(MotionCorrection(yaw_rad=0.35, shift_x=0.05))}
    whole = seal({"v0: in": found})
    for old, new in ((b'"yaw_rad": 0.35', b'"yaw_rad": 0.95'), (b'"shift_x": 0.05', b'"shift_x": 0.35')):
        (tmp_path / FILE).write_bytes(whole.replace(old, new))
        problems = []
        keeper = CorrectionKeeper(tmp_path, "found", 5, on_problem=problems.append)
        assert keeper.begin(1, PICK, "v0") == NONE and "its checksum does not fit" in problems[0]


def test_a_damaged_file_that_cannot_be_moved_stays_and_nothing_is_searched_for(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("read-only")

    (tmp_path / FILE).write_text("{")
    monkeypatch.setattr(correction_keeper, "set_aside", refuse)
    problems = []
    keeper = CorrectionKeeper(tmp_path, "search", 5, on_problem=problems.append)
    assert keeper.begin(1, PICK, "v0") == NONE and "cannot be moved aside (read-only)" in problems[0]
    keeper.tell(1, 1.0)
    assert (tmp_path / FILE).read_text() == "{" and keeper.said == problems[0]


def test_what_is_whole_is_read(tmp_path):
    (tmp_path / FILE).write_bytes(seal({"v0: in": GOOD | {"found": {"scale": 0.5}}}))
    assert CorrectionKeeper(tmp_path, "found", 5).begin(1, PICK, "v0") == MotionCorrection(scale=0.5)


def test_corrections_add_up_no_farther_than_they_may(tmp_path):
    most = {"scale": 10.0, "yaw_rad": 1.3, "shift_x": 0.35, "shift_y": -0.35}
    (tmp_path / FILE).write_bytes(seal({"v0: in": GOOD | {"found": most, "plain": [1.0] * PLAIN}}))
    keeper = CorrectionKeeper(tmp_path, "search", 50)
    for episode in range(30):
        drives = keeper.begin(episode, PICK, "v0")
        assert drives.scale <= 10.7 and abs(drives.yaw_rad) < np.pi / 2 and max(abs(drives.shift)) <= 0.36
        keeper.tell(episode, 0.5)


def test_a_folder_that_cannot_be_written_is_named_and_the_search_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    problems = []
    keeper = CorrectionKeeper(tmp_path / "file", "search", 5, on_problem=problems.append)
    assert len({*practise(keeper, 20, MotionCorrection(2.0))}) > 2
    assert "cannot be written" in problems[0]
