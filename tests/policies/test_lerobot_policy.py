"""ACT and Diffusion, as LeRobot trains and saves them, behind our contracts."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
from safetensors.torch import load_file, save_file

from engram.core.camera import CameraConfig
from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.core.robot import PANDA_2F85
from engram.core.types import Lineage, Observation
from engram.learning.algorithms.clone_policy import clone_policy
from engram.policies import LeRobotPolicy, load_policy
from engram.policies.checkpoint import export
from engram.policies.lerobot.lerobot_policy import step_seed
from engram.policies.lerobot.robot_features import robot_features
from engram.policies.opening import open_policy
from engram.runtime.factories import make_policy
from engram.runtime.policy_runner import PolicyRunner, PolicyStep, source_of
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import make_runtime
from tests.contracts.policy import PolicyContract
from tests.core.frames import camera_frame
from tests.core.gantry import GANTRY, GantryKinematics

from .forks import python
from .synthetic import make_dataset
from .test_vla_policy import observe
from .tiny import tiny_vla
from .tiny_lerobot import FAMILIES, save_tiny

STEP_NS = 100_000_000
ROBOT = dataclasses.replace(
    GANTRY, cameras=(*GANTRY.cameras, CameraConfig.looking_at("wrist", (1.0, 0.0, 1.0), (0.0, 0.0, 0.0)))
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Where a policy of each family is; they are written when they are first asked for."""
    root = tmp_path_factory.mktemp("lerobot")

    def folder(family):
        path = root / family
        return path if path.exists() else save_tiny(family, path)

    return folder


def load(folder, **options):
    return load_policy(folder, GantryKinematics(), ROBOT, **options)


def driven(policy, steps, seed=0):
    """Return the actions of an episode of so many control steps, asked for when a chunk is used up."""
    policy.reset("go to the red cube", seed=seed)
    chunk, rows = None, []
    for step in range(steps):
        policy.observe(observe(step * STEP_NS))
        if chunk is None or chunk.spent(step * STEP_NS):
            chunk = policy.act()
        rows.append(chunk.actions[chunk.row(step * STEP_NS)])
    return np.array(rows)


def lerobots(folder, steps, seed=0):
    """Return what LeRobot's own policy and processors do in the same episode, with the same random numbers."""
    network = get_policy_class(json.loads((folder / "config.json").read_text())["type"]).from_pretrained(folder)
    before, after = make_pre_post_processors(network.config, str(folder))
    policy, rows = load(folder), []
    network.reset()
    for step in range(steps):
        seen = observe(step * STEP_NS)
        batch = {
            f"observation.images.{name}": torch.tensor(frame.color).permute(2, 0, 1).float() / 255.0
            for name, frame in seen.cameras.items()
        }
        batch["observation.state"] = policy.features.state(seen.joints, policy.kinematics, ROBOT)
        torch.manual_seed(step_seed(seed, step))
        rows.append(after(network.select_action(before({**batch, "task": "go to the red cube"})))[0].numpy())
    return np.array(rows)


class LeRobotContract(PolicyContract):
    family: str

    @pytest.fixture(autouse=True)
    def where(self, folders, tmp_path):
        self.folder, self.other = folders(self.family), tmp_path / "other"

    def make(self):
        return load(self.folder)

    def observation(self, stamp_ns):
        return observe(stamp_ns)

    def save_other_weights(self, path):
        shutil.copy(save_tiny(self.family, self.other, seed=1) / "model.safetensors", path)


class TestAct(LeRobotContract):
    family = "act"


class TestDiffusion(LeRobotContract):
    family = "diffusion"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_episode_has_the_bits_of_lerobots_own_loop(family, folders):
    expected = lerobots(folders(family), 8).clip(-1, 1)
    assert np.abs(expected).min() < 0.9  # not all of it is cut
    np.testing.assert_array_equal(driven(load(folders(family)), 8), expected)


def test_act_with_temporal_ensembling_is_averaged_by_lerobot(tmp_path):
    folder = save_tiny("act", tmp_path / "act", n_action_steps=1, temporal_ensemble_coeff=0.01)
    policy = load(folder)
    np.testing.assert_array_equal(driven(policy, 5), lerobots(folder, 5).clip(-1, 1))
    assert policy.act().actions.shape == (1, 7)


def test_a_chunk_is_whole_and_says_how_much_of_it_is_executed(folders):
    for execute_steps, expected in ((None, 3), (2, 2), (6, 6)):
        policy = load(folders("act"), execute_steps=execute_steps)
        driven(policy, 1)
        chunk = policy.act()
        assert (chunk.actions.shape, chunk.execute_steps, chunk.space) == ((6, 7), expected, "ee_delta")
    assert policy.version.startswith("act-") and policy.cameras == ("front", "wrist")


@pytest.mark.parametrize(("family", "rows"), [("act", 6), ("diffusion", 3)])
def test_more_steps_than_a_chunk_has_rows_are_refused_when_the_policy_is_loaded(family, rows, folders):
    assert load(folders(family), execute_steps=rows).execute_steps == rows
    for steps in (rows + 1, -1):
        with pytest.raises(InvalidInputError, match=rf"execute_steps: {steps}, expected 1\.\.{rows}, .* of {family}-"):
            load(folders(family), execute_steps=steps)


def test_a_type_that_does_not_say_how_many_rows_it_has_tells_by_its_first_answer(folders):
    policy = load(folders("act"))
    policy.execute_steps = 7
    with pytest.raises(InvalidInputError, match=r"execute_steps 7: act-.* answers with 6 rows"):
        driven(policy, 1)


def test_diffusion_acts_on_the_step_before_which_it_was_not_asked_about(folders):
    chunks = {}
    for family in FAMILIES:
        policy = load(folders(family))
        for before in (1, 2):
            policy.reset("go", seed=0)
            policy.observe(Observation(0, observe(before * STEP_NS).cameras, observe(0).joints))
            policy.observe(observe(5 * STEP_NS))
            chunks[family, before] = policy.act().actions
    assert np.array_equal(chunks["act", 1], chunks["act", 2])
    assert not np.array_equal(chunks["diffusion", 1], chunks["diffusion", 2])


def test_random_numbers_depend_on_seed_and_step_alone_and_are_given_back(folders):
    policy = load(folders("diffusion"))
    first = driven(policy, 5, seed=1)
    torch.manual_seed(123)
    np.testing.assert_array_equal(driven(policy, 5, seed=1), first)
    left = torch.randint(1000, (4,))
    assert torch.equal(left, torch.randint(1000, (4,), generator=torch.Generator().manual_seed(123)))
    assert not np.array_equal(driven(policy, 5, seed=2), first)


def test_joint_positions_drive_the_joints(tmp_path):
    policy = load(save_tiny("act", tmp_path / "act", state=4, action=4))
    driven(policy, 1)
    assert (policy.act().space, policy.act().actions.shape) == ("joint_position", (6, 4))
    seen = observe(0)
    np.testing.assert_array_equal(
        policy.features.state(seen.joints, policy.kinematics, ROBOT), seen.joints.positions.astype(np.float32)
    )


def test_joint_positions_in_degrees_are_refused_by_what_the_policy_trained_on(tmp_path):
    load(save_tiny("act", tmp_path / "rad", state=4, action=4, mean=0.9))
    with pytest.raises(InvalidInputError, match=r"observation\.state: x was 51\.0 on average .*convert .* to rad"):
        load(save_tiny("act", tmp_path / "deg", state=4, action=4, mean=51.0))
    load(save_tiny("act", tmp_path / "tool", state=11, action=7, mean=51.0))  # no joint positions alone


def test_a_camera_that_was_renamed_for_training_is_found_again(tmp_path):
    folder = save_tiny("act", tmp_path / "act", cameras=("observation.images.camera1", "observation.images.camera2"))
    with pytest.raises(UnknownNameError, match=r"unknown camera image of robot gantry 'observation.images.camera1'"):
        load(folder)
    path = folder / "policy_preprocessor.json"
    steps = json.loads(path.read_text())
    renames = {
        f"observation.images.{a}": f"observation.images.{b}" for a, b in (("front", "camera1"), ("wrist", "camera2"))
    }
    steps["steps"][0]["config"]["rename_map"] = renames
    path.write_text(json.dumps(steps))
    renamed = load(folder)
    assert renamed.cameras == ("front", "wrist")
    assert np.isfinite(driven(renamed, 1)).all()


def test_images_that_a_policy_fills_with_nothing_are_no_cameras():
    image = PolicyFeature(FeatureType.VISUAL, (3, 64, 64))
    inputs = {f"observation.images.{name}": image for name in ("front", "wrist")}
    outputs = {"action": PolicyFeature(FeatureType.ACTION, (7,))}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (11,))
    config = make_policy_config("pi05", device="cpu", input_features=inputs, output_features=outputs, empty_cameras=1)
    config.validate_features()
    assert "observation.images.empty_camera_0" in config.image_features
    assert [camera.camera for camera in robot_features(config, {}, ROBOT).cameras] == ["front", "wrist"]


SIX = ("arm_joints", "position_min", "position_max", "velocity_max", "acceleration_max", "jerk_max", "home")


def test_seven_numbers_that_may_be_joints_or_a_tool_motion_are_refused():
    six = {name: getattr(PANDA_2F85, name)[:6] for name in SIX}
    seven = dataclasses.replace(PANDA_2F85, name="six_axes", **six)
    image = PolicyFeature(FeatureType.VISUAL, (3, 64, 64))
    for state, space in ((seven.state_dim, "ee_delta"), (7, None), (None, None)):
        inputs = {"observation.images.front": image}
        if state is not None:
            inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (state,))
        outputs = {"action": PolicyFeature(FeatureType.ACTION, (7,))}
        config = make_policy_config("act", device="cpu", input_features=inputs, output_features=outputs)
        if space is not None:
            assert robot_features(config, {}, seven).space == space
            continue
        with pytest.raises(InvalidInputError, match="tool motion or the 7 joint positions of robot 'six_axes'"):
            robot_features(config, {}, seven)


def test_larger_images_are_averaged_and_others_are_refused(folders):
    camera = load(folders("act")).features.cameras[0]
    frame = camera_frame(0, name="front", size=128)
    color = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    image = camera.image(dataclasses.replace(frame, color=color, depth=None)).numpy()
    mean = color.reshape(64, 2, 64, 2, 3).mean((1, 3)).transpose(2, 0, 1) / 255.0
    np.testing.assert_allclose(image, mean, atol=1e-6)
    for height, width in ((32, 32), (64, 128), (128, 64)):
        other = dataclasses.replace(frame, color=np.zeros((height, width, 3), np.uint8), depth=None)
        with pytest.raises(
            InvalidInputError, match=rf"camera 'front': {height} x {width} px; the policy takes 64 x 64"
        ):
            camera.image(other)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cameras": ("observation.images.top",)}, UnknownNameError,
         r"'observation.images.top'; .*valid: observation.images.front, observation.images.wrist"),
        ({"cameras": ("observation.image",)}, UnknownNameError, "'observation.image'; did you mean"),
        ({"state": 9}, InvalidInputError, r"takes 9 numbers, expected 11 .* of robot 'gantry', .* or 4 \(its joint"),
        ({"action": 6}, InvalidInputError, r"gives 6 numbers, expected 7 .* or 4 .*: x, y, z, gripper\)"),
        ({"inputs": {"observation.environment_state": PolicyFeature(FeatureType.ENV, (5,))}}, InvalidInputError,
         r"'act' takes 'observation.environment_state'; robot 'gantry' measures observation.state and"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_robot_is_named_with_what_would(options, error, words, tmp_path):
    with pytest.raises(error, match=words):
        load(save_tiny("act", tmp_path / "act", **options))


def test_files_that_are_no_policy_are_named(folders, tmp_path):
    folder = shutil.copytree(folders("act"), tmp_path / "out" / "checkpoints" / "last" / "pretrained_model")
    with pytest.raises(WeightsError, match=r"did you mean .*out/checkpoints/last/pretrained_model\?$"):
        load(tmp_path / "out")
    tensors = load_file(folder / "model.safetensors")
    name = "model.action_head.bias"
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=f"lacks tensor '{name}'"):
        load(folder)
    save_file(tensors, folder / "model.safetensors")
    (folder / "policy_preprocessor.json").unlink()
    with pytest.raises(WeightsError, match=r"no policy_preprocessor.json in this folder"):
        load(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "use_peft": True}))
    with pytest.raises(InvalidInputError, match="an adapter"):
        load(folder)
    (folder / "config.json").write_text(json.dumps({**config, "type": "atc"}))
    with pytest.raises(UnknownNameError, match=r"unknown type of policy .* 'atc'; did you mean 'act'\? valid: act, "):
        load(folder)
    (folder / "config.json").write_text(json.dumps({**config, "no_such_field": 1}))
    with pytest.raises(WeightsError, match=r"config\.json is none of type 'act'"):
        load(folder)


def test_a_policy_on_the_hub_is_the_one_in_the_folder(folders, tmp_path, monkeypatch):
    """Of the hub there is only what was fetched before: the tests ask no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    ours = tiny_vla()
    export(tmp_path / "ours", ours.network, ours.preprocess, ours.postprocess, {})
    for name, folder in (("act", folders("act")), ("ours", tmp_path / "ours")):
        fetched = tmp_path / f"models--somebody--{name}"
        shutil.copytree(folder, fetched / "snapshots" / ("0" * 40))
        (fetched / "refs").mkdir()
        (fetched / "refs" / "main").write_text("0" * 40)
        there, here = open_policy(f"somebody/{name}"), open_policy(folder)
        assert there.version == here.version and there.lineage.id == here.lineage.id
        assert there.lineage.name == f"somebody/{name}"


def test_what_only_our_own_policies_have_is_refused(folders):
    for options in ({"ablation": "zeroed"}, {"real_time_delay": 2}):
        with pytest.raises(InvalidInputError, match="not for a policy of LeRobot's type 'act'"):
            load(folders("act"), **options)
    with pytest.raises(InvalidInputError, match="a policy of type act is frozen, and practises by corrections alone"):
        clone_policy(load(folders("act")))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_node_s_runner_drives_it_and_takes_weights_of_its_lineage_alone(family, folders, tmp_path):
    policy = make_policy(str(folders(family)), kinematics=GantryKinematics(), robot=ROBOT)
    assert isinstance(policy, LeRobotPolicy)
    refused = []
    runner = PolicyRunner(policy, refused.append)
    alone = driven(load(folders(family)), 6, seed=3)

    def run(steps):
        rows = []
        for step in steps:
            runner.step(PolicyStep(observe(step * STEP_NS), 3, "go to the red cube"))
            rows.append(runner.chunk.actions[runner.chunk.row(step * STEP_NS)])
        return np.array(rows)

    np.testing.assert_array_equal(run(range(6)), alone)
    own, other = policy.lineage, save_tiny(family, tmp_path / "other", seed=1)
    assert source_of(policy).lineage == own.id
    assert load(other).lineage.id != own.id
    runner.offer_weights(other / "model.safetensors", "v2", load(other).lineage)
    run([6])
    assert "of lineage" in str(refused[0]) and policy.version.startswith(family)
    runner.offer_weights(other / "model.safetensors", "v2", Lineage(**vars_of(own)))
    run([9])
    assert len(refused) == 1 and policy.version == "v2" == runner.chunk.policy_version


def vars_of(lineage):
    return {field.name: getattr(lineage, field.name) for field in dataclasses.fields(lineage)}


@pytest.mark.render
@pytest.mark.parametrize(("family", "state", "action"), [("act", 15, 7), ("diffusion", 15, 7), ("act", 8, 8)])
def test_it_drives_an_episode_in_simulation_behind_the_safety_filter(family, state, action, tmp_path):
    folder = save_tiny(family, tmp_path / family, state=state, action=action, side=128)
    world = MujocoWorld(WorldConfig(profile="fast"))
    result = make_runtime(load_policy(folder), world).run_episode("reach", 0)
    world.close()
    moved = np.abs(np.diff(result.commands, axis=0))
    assert result.steps == len(result.commands) > 10 and moved.max() > 0.01
    assert (moved[:, :7] <= np.array(PANDA_2F85.velocity_max) * 0.1 + 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_what_lerobot_train_leaves_is_loaded(family, tmp_path):
    if family == "diffusion":
        pytest.importorskip("diffusers")
    dataset = make_dataset(tmp_path / "data", episodes=2, length=12, size=64)
    small = {
        "act": ("--policy.dim_model=16", "--policy.n_heads=2"),
        "diffusion": ("--policy.down_dims=[16,32]", "--policy.num_train_timesteps=3", "--policy.horizon=8"),
    }
    command = [
        "-m", "lerobot.scripts.lerobot_train", f"--policy.type={family}", "--policy.device=cpu",
        "--policy.pretrained_backbone_weights=null", "--policy.push_to_hub=false", *small[family],
        "--dataset.repo_id=engram/synthetic", f"--dataset.root={dataset}", f"--output_dir={tmp_path / 'out'}",
        "--steps=1", "--batch_size=2", "--num_workers=0", "--save_freq=1", "--env_eval_freq=0", "--wandb.enable=false",
    ]  # fmt: skip
    done = python(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    policy = make_policy(str(tmp_path / "out" / "checkpoints" / "last" / "pretrained_model"), execute_steps=4)
    assert policy.version.startswith(f"{family}-") and policy.execute_steps == 4
