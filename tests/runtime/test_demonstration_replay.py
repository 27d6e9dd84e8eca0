"""A demonstration is replayed where the memory sees the things of the words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.control import ControlConfig
from engram.core.errors import InvalidInputError
from engram.core.robot import PANDA_2F85
from engram.core.types import JointState, Observation, SceneNode
from engram.runtime.demonstration_replay import (
    WHO,
    Demonstration,
    DemonstrationReplay,
    ReplayDevice,
    check_shown_by,
    moved,
    read_demonstrations,
)
from engram.runtime.teleop import Keys, Seen
from tests.runtime.demonstrations import dataset
from tests.viewer.scenes import scene_node

CLOSED = np.r_[-np.ones(10), np.ones(10), -np.ones(5)]
PATH = np.c_[np.linspace(0.3, 0.5, 25), np.zeros(25), np.linspace(0.2, 0.05, 25)]
CARRY = Demonstration("put the red cube on the mark", PATH, CLOSED)
HOLD = Demonstration("lift the red cube", PATH[:20], CLOSED[:20])


def test_a_path_begins_as_shown_grasps_at_the_thing_and_lets_go_at_the_target() -> None:
    thing, target = np.array([0.55, 0.1]), np.array([0.4, -0.1])
    path = moved(CARRY, thing, target)
    assert path is not None
    np.testing.assert_allclose(path[0], PATH[0])
    np.testing.assert_allclose(path[10, :2], thing)
    np.testing.assert_allclose(path[20:, :2] - PATH[20:, :2], [target - PATH[20, :2]] * 5, atol=1e-9)
    np.testing.assert_allclose(path[:, 2], PATH[:, 2])
    assert np.abs(np.diff(path - PATH, axis=0)).max() < 0.06  # no jump


def test_what_is_held_to_the_end_moves_with_the_thing_alone() -> None:
    path = moved(HOLD, np.array([0.6, 0.2]), None)
    assert path is not None
    begun = moved(HOLD, np.array([0.6, 0.2]), None, np.array([0.32, 0.05, 0.25]))
    assert begun is not None
    np.testing.assert_allclose(begun[0], [0.32, 0.05, 0.25])
    np.testing.assert_allclose(begun[10:], path[10:])
    np.testing.assert_allclose(path[10:, :2] - PATH[10:20, :2], [np.array([0.6, 0.2]) - PATH[10, :2]] * 10)
    assert moved(HOLD, np.zeros(2), np.zeros(2)) is None  # it lets go nowhere
    assert moved(Demonstration("touch the cube", PATH, -np.ones(25)), np.zeros(2), None) is None


class Scene:
    """Stands in for a memory: the things that are there."""

    def __init__(self, **things: float) -> None:
        named = enumerate(things.items())
        self.nodes = [scene_node(f"object/{at}", name.replace("_", " "), x) for at, (name, x) in named]

    def graph(self) -> Sequence[SceneNode]:
        return self.nodes


class Straight:
    """An arm whose tool is where its first three joints say."""

    def forward(self, arm: np.ndarray):
        from engram.core.types import Pose

        return Pose(np.asarray(arm[:3]), np.array([1.0, 0, 0, 0]))


def at(tool: np.ndarray, stamp_ns: int = 1, gripper: float = 0.0) -> Observation:
    joints = np.r_[tool, np.zeros(4), gripper]
    return Observation(stamp_ns, {}, JointState(stamp_ns, PANDA_2F85.joint_names, joints, 0 * joints))


def drive(replay: DemonstrationReplay, steps: int = 60) -> np.ndarray:
    """Return where the tool was when the hand closed first."""
    tool = PATH[0].copy()
    for step in range(steps):
        human = replay(at(tool, step * 100_000_000))
        assert human is not None and human.who == WHO
        if human.action[-1] > 0:
            return tool
        tool = tool + 0.05 * human.action[:3]
    raise AssertionError("it never grasped")


def test_the_hand_closes_where_the_memory_sees_the_thing_of_the_words() -> None:
    scene = Scene(blue_cube=0.4, red_cube=0.55, mark=0.45)
    words = ["put the red cube on the mark"]
    replay = DemonstrationReplay([HOLD, CARRY], scene.graph, lambda: (1, words[0]), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    np.testing.assert_allclose(drive(replay)[:2], [0.55, 0.1], atol=0.01)
    assert replay.steps > 5
    replay.begin()
    words[0] = "put the blue cube on the mark"
    np.testing.assert_allclose(drive(replay)[:2], [0.4, 0.1], atol=0.01)


class Body:
    """An arm that differs from the one that demonstrated, and whose hand closes by ``closes`` in a step."""

    def __init__(
        self, late: int = 0, deadband: float = 0.0, gain: float = 1.0, yaw_deg: float = 0.0, closes: float = 0.45
    ) -> None:
        self.tool, self.hand, self.moved, self.closes = PATH[0].copy(), 0.0, 0.0, closes
        self.coming = [np.r_[np.zeros(6), -1.0]] * late
        self.deadband, self.gain, self.turn = deadband, gain, Rotation.from_euler("z", yaw_deg, degrees=True)

    def step(self, action: np.ndarray) -> None:
        *self.coming, now = [action, *self.coming]
        length = float(np.linalg.norm(now[:3]))
        motion = now[:3] * max(0.0, length - self.deadband) / max(length, 1e-9)
        motion = self.gain * ControlConfig().position_scale_m * self.turn.apply(motion)
        self.tool, self.moved = self.tool + motion, float(np.linalg.norm(motion))
        self.hand = float(np.clip(self.hand + (self.closes if now[-1] > 0 else -0.45), 0.0, 0.45))

    def seen(self, step: int) -> Observation:
        opened, closed = PANDA_2F85.gripper_open, PANDA_2F85.gripper_closed
        return at(self.tool, step * 100_000_000, opened + self.hand * (closed - opened))


@pytest.mark.parametrize(
    "body",
    [{}, {"late": 2}, {"deadband": 0.12}, {"gain": 1.4}, {"gain": 0.6}, {"yaw_deg": 15.0}, {"closes": 0.1}],
    ids=str,
)
def test_a_robot_whose_motions_differ_rests_at_the_thing_when_it_grasps_and_at_the_target_when_it_lets_go(
    body: dict[str, float],
) -> None:
    scene, robot, hands, lifted = Scene(red_cube=0.5, mark=0.45), Body(**body), [], []  # type: ignore[arg-type]
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    path = moved(CARRY, np.array([0.5, 0.1]), np.array([0.45, 0.1]), PATH[0])
    assert path is not None
    beside = 0.0
    for step in range(120):
        human = replay(robot.seen(step))
        assert human is not None
        was = robot.hand
        robot.step(human.action)
        beside = max(beside, float(np.linalg.norm(path - robot.tool, axis=1).min()))
        if robot.hand != was:
            hands.append((np.linalg.norm(path[10 if robot.hand else 20] - robot.tool), robot.moved))
        if 0.0 < robot.hand < 0.45:
            lifted.append(robot.moved)
    assert replay.is_over and len(hands) == (2 if robot.closes == 0.45 else 6) and robot.hand == 0.0
    assert max(far for far, _ in hands) < 0.012
    assert max(moved_m for _, moved_m in hands) < 0.004
    assert max(lifted, default=0.0) < 0.004  # a slow hand is waited for
    assert beside < 0.035  # it cuts no corner


@pytest.mark.parametrize(
    ("words", "things"),
    [
        ("put the red cube on the mark", {"blue_cube": 0.4, "mark": 0.5}),  # no red cube
        ("put the red cube on the mark", {"red_cube": 0.4}),  # no mark
        ("open the drawer", {"drawer": 0.4}),  # no demonstration of that
        ("dance", {"red_cube": 0.4}),
        ("put the red cube on the mark", {"red_cube": 3.0, "mark": 0.5}),  # out of reach
    ],
)
def test_the_policy_drives_where_nothing_can_be_replayed(words: str, things: dict[str, float]) -> None:
    scene = Scene(**things)
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    assert replay(at(PATH[0])) is None and replay.steps == 0
    assert DemonstrationReplay([CARRY], lambda: (), lambda: (1, words), Straight(), PANDA_2F85)(at(PATH[0])) is None  # type: ignore[arg-type]


def test_demonstrations_are_read_from_a_dataset(tmp_path: Path) -> None:
    (one,) = read_demonstrations("--x", dataset(tmp_path / "d", CARRY.words, CLOSED, ["x", "y", "z", "grip"], PATH))
    assert (one.words, one.grasp, one.release) == (CARRY.words, 10, 20)
    np.testing.assert_allclose(one.tool, PATH, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "gripper", "names", "said"),
    [
        (CARRY.words, CLOSED, ["j1", "j2", "j3"], r"--x: .*state \['j1', 'j2', 'j3'\], 7 numbers an action; expected"),
        (
            CARRY.words,
            np.ones(25),
            ["x", "y", "z"],
            "--x: .*none in which an open hand closes",
        ),  # begins with it in hand
        (CARRY.words, np.r_[np.nan, CLOSED[1:]], ["x", "y", "z"], "--x: .*episode 0 holds numbers that are not finite"),
        (CARRY.words, -np.ones(25), ["x", "y", "z"], "--x: .*1 demonstrations, but none in which an open hand closes"),
        ("dance", CLOSED, ["x", "y", "z"], "--x: .*none in which .* and whose words name a relation"),
    ],
)
def test_what_cannot_be_replayed_is_refused_by_name(
    tmp_path: Path, words: str, gripper: np.ndarray, names: list[str], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_demonstrations("--x", dataset(tmp_path / "d", words, gripper, names, PATH))


def test_a_folder_that_is_no_dataset_is_named(tmp_path: Path) -> None:
    (tmp_path / "info.json").write_text(json.dumps({}))
    with pytest.raises(InvalidInputError, match="no LeRobotDataset"):
        read_demonstrations("--x", tmp_path)


def test_a_path_goes_on_once_a_control_step_however_often_it_is_asked_and_waits_for_a_tool_that_lags() -> None:
    scene = Scene(red_cube=0.55, mark=0.45)
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    positions = np.r_[PATH[0], np.zeros(5)]
    actions = [replay.act(positions, now_s) for now_s in (0.0, 0.02, 0.05, 0.08, 0.1)]
    first, *same, later = [action for action in actions if action is not None]
    for one in same:
        np.testing.assert_array_equal(one, first)
    assert np.linalg.norm(later[:3]) > np.linalg.norm(first[:3])
    for step in range(2, 100):
        replay.act(positions, 0.1 * step)
    assert not replay.is_over  # the tool has not moved


def test_what_is_replayed_ends_with_its_goal_and_the_next_one_is_begun_by_the_person_anew() -> None:
    scene, words, typed = Scene(red_cube=0.55, blue_cube=0.4, mark=0.45), ["put the red cube on the mark"], [" "]
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, words[0]), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    device = ReplayDevice(replay, Keys(lambda: typed.pop() if typed else "", moves=False))
    seen = Seen(np.r_[PATH[0], np.zeros(5)], -1.0)
    assert device.read(seen).drives
    words[0] = "put the blue cube on the mark"
    wish = device.read(seen)
    assert not wish.drives and wish.note == "nothing is replayed: the goal has ended"
    assert not device.read(seen).drives
    typed.append(" ")
    assert device.read(seen).drives


def test_a_tool_that_meets_something_above_the_release_lets_go_there() -> None:
    """It holds the thing lower than was shown, or the target is taller."""
    slow = np.r_[np.linspace(0.3, 0.1, 10), 0.1 * 0.6 ** np.arange(12)]
    path = np.c_[np.full(22, 0.4), np.zeros(22), slow]
    shown = Demonstration(CARRY.words, path, np.r_[-np.ones(3), np.ones(18), -1.0])
    scene, robot = Scene(red_cube=0.4, mark=0.4), Body()
    robot.tool = path[0].copy()
    replay = DemonstrationReplay([shown], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    for step in range(150):
        human = replay(robot.seen(step))
        assert human is not None
        robot.step(human.action)
        robot.tool[2] = max(robot.tool[2], path[21, 2] + 0.012)
    assert replay.is_over


@pytest.mark.parametrize("release", [20, 23, 24])
def test_a_replay_ends_once_the_tool_is_at_its_end_and_the_hand_has_opened(release: int) -> None:
    shown = Demonstration(CARRY.words, PATH, np.where((np.arange(25) < 10) | (np.arange(25) >= release), -1.0, 1.0))
    scene, robot = Scene(red_cube=0.5, mark=0.45), Body(late=2)
    replay = DemonstrationReplay([shown], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    for step in range(120):
        human = replay(robot.seen(step))
        assert human is not None
        if replay.is_over:
            break
        robot.step(human.action)
    path = moved(shown, np.array([0.5, 0.1]), np.array([0.45, 0.1]), PATH[0])
    assert replay.is_over and path is not None
    assert robot.hand == 0.0 and np.linalg.norm(path[-1] - robot.tool) < 0.01


def test_a_replay_waits_while_the_robot_is_held() -> None:
    """What it waits for patiently it would else go on without: the hand would close as the arm moves on."""
    scene, robot = Scene(red_cube=0.5, mark=0.45), Body()
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    for step in range(400):
        one = robot.seen(step)
        held = 8 <= step < 300
        human = replay(dataclasses.replace(one, joints=dataclasses.replace(one.joints, held=held)))
        assert human is not None
        if held:
            assert not human.action[:3].any() and human.action[-1] == -1.0
            continue
        was = robot.hand
        robot.step(human.action)
        assert robot.hand == was or robot.moved < 0.004
    assert replay.is_over and robot.hand == 0.0


def test_a_replay_on_a_robot_goes_by_the_stamps_of_its_joints() -> None:
    """The same measurement, heard of twice, does not show that the tool rests."""
    scene, typed = Scene(red_cube=0.55, mark=0.45), [" "]
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    device = ReplayDevice(replay, Keys(lambda: typed.pop() if typed else "", moves=False))
    first, again, later, set_back = (
        device.read(Seen(np.r_[tool, np.zeros(5)], -1.0, stamp_ns=stamp_ns)).action
        for tool, stamp_ns in ((PATH[0], 10**18), (PATH[0], 10**18), (PATH[1], 10**18 + 10**8), (PATH[2], 10**9))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(again, later) and not np.array_equal(later, set_back)


def test_what_the_memory_hardly_believes_in_is_not_reached_for() -> None:
    scene = Scene(red_cube=0.55, mark=0.45)
    scene.nodes[0] = dataclasses.replace(scene.nodes[0], belief=0.3, state="unseen")
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (1, CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    assert replay(at(PATH[0])) is None and replay.why == "the memory sees no 'red cube' now"


def test_a_replay_begins_with_an_open_hand_near_where_it_was_shown_and_not_while_the_robot_is_halted() -> None:
    scene, typed, goal = Scene(red_cube=0.55, mark=0.45), [" "], [1]
    replay = DemonstrationReplay([CARRY], scene.graph, lambda: (goal[0], CARRY.words), Straight(), PANDA_2F85)  # type: ignore[arg-type]
    here, far = np.r_[PATH[0], np.zeros(5)], np.r_[PATH[0] + [0.2, 0.0, 0.0], np.zeros(5)]
    holding = here + np.r_[np.zeros(7), PANDA_2F85.gripper_closed]
    assert replay.act(holding, 0.0) is None and replay.why == "the hand is closed: open it first"
    assert replay.act(far, 0.0) is None
    assert replay.why.startswith("the tool is 0.20 m from where the demonstration began (x 0.30, y 0.00, z 0.20 m)")
    device = ReplayDevice(replay, Keys(lambda: typed.pop() if typed else "", moves=False))
    assert device.read(Seen(here, -1.0)).drives
    assert not device.read(Seen(here, -1.0, halted=True)).drives  # stopped by somebody else
    assert not device.read(Seen(here, -1.0)).drives  # nor after a release
    typed.append(" ")
    assert device.read(Seen(here, -1.0)).drives
    goal[0] = 2  # in the same words
    assert not device.read(Seen(here, -1.0)).drives


def test_demonstrations_of_another_robot_or_rate_are_refused(tmp_path: Path) -> None:
    shown = dataset(tmp_path / "d", CARRY.words, CLOSED, ["x", "y", "z"], PATH)
    check_shown_by("--x", shown, PANDA_2F85)  # it does not say whose it is
    info = shown / "meta" / "info.json"
    told = json.loads(info.read_text())
    for key, value in (("robot_type", "so101"), ("fps", 30)):
        info.write_text(json.dumps(told | {key: value}))
        with pytest.raises(InvalidInputError, match=r"--x: .*expected 'panda_2f85' at 10"):
            check_shown_by("--x", shown, PANDA_2F85)
