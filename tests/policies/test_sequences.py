"""Learning from whole episodes: the walk through them, what is carried, and what a memory makes possible."""

import functools
import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from engram.core.context_rows import ContextBuilder, ContextRows
from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.policies.lerobot.processor_engram_vla import of_shrunk_images
from engram.policies.sequence_memory.bank import Bank, BankConfig
from engram.policies.sequence_memory.base import SequenceMemory, choose
from engram.policies.sequence_memory.fast_forgetful import FastForgetful
from engram.policies.sequence_memory.frame_stack import FrameStack
from engram.policies.sequence_memory.gru import Gru
from engram.policies.sequence_memory.retrieval import ChunksConfig, PlaceChunks, TimeChunks
from engram.policies.training.frames import Frames, same_views
from engram.policies.training.resuming import FIXED, LATER
from engram.policies.training.sequences import EpisodeStreams, SequenceFeed, turning_points
from engram.policies.training.train import CONTEXT, GATE, Trainer, main
from engram.policies.training.train_config import TrainConfig
from engram.policies.vla.contract import Percept
from engram.policies.vla.network import Sight

from .recall_task import LENGTH, ask, episodes, learn, make_recall_dataset
from .tiny import tiny_policy

DIM, FEATURE = 16, 48
LEARNT = ("recall", "memory", "state", "head")
"""Parts of the network that learn while perception is frozen."""
MODEL = (
    ("keypoints", 4), ("image_tokens_side", 2), ("dim", 16), ("layers", 2), ("heads", 2), ("head_width", 32),
    ("head_blocks", 1), ("chunk_size", 2), ("flow_draws", 8), ("memory_steps", 4), ("memory_events", 3),
    ("memory_details", 1), ("state_dropout", 0),
)  # fmt: skip


def frames(*lengths):
    """Return frames without pictures in episodes of these lengths."""
    ends = np.cumsum(lengths) - 1
    n = sum(lengths)
    zeros = np.zeros(n, np.int64)
    return Frames(
        images={},
        state=np.zeros((n, 15), np.float32),
        action=np.zeros((n, 7), np.float32),
        last=np.repeat(ends, lengths),
        words=zeros,
        group=zeros,
        view=np.arange(n),
        instructions=("go",),
        groups=("go",),
        embeddings=np.zeros((1, 384), np.float32),
        idle=np.zeros(n, bool),
    )


def lanes_of(walked, streams, window, seed):
    """Return streams through these frames, tasks balanced as usual."""
    return EpisodeStreams(walked, streams, window, walked.sampling_weights(0.5), seed)


def test_a_view_is_the_same_as_long_as_no_camera_sees_a_change_in_the_episode():
    front, wrist = np.zeros((2, 7, 3, 1, 1), np.uint8)
    front[2:4], wrist[6] = 9, 1
    last = np.array([4, 4, 4, 4, 4, 6, 6])
    for block in (1, 2, 100):
        assert same_views([front, wrist], last, block).tolist() == [0, 0, 2, 2, 4, 5, 6]


def test_a_lane_walks_through_an_episode_to_its_end_and_begins_the_next():
    streams = lanes_of(frames(5), 1, 2, (0,))
    windows = [streams.next() for _ in range(4)]
    assert [w.rows[0][w.valid[0]].tolist() for w in windows] == [[0, 1], [2, 3], [4], [0, 1]]
    assert [bool(w.first[0]) for w in windows] == [True, False, False, True]
    assert [int(w.step[0]) for w in windows] == [0, 2, 4, 0]


def test_windows_never_cross_episodes_and_every_episode_comes_up():
    lengths = (3, 5, 9)
    streams, last = lanes_of(frames(*lengths), 3, 4, (1,)), frames(*lengths).last
    seen, at = set(), [-1] * 3
    for _ in range(40):
        window = streams.next()
        for stream in range(3):
            rows = window.rows[stream][window.valid[stream]]
            assert len({int(last[row]) for row in rows}) == 1
            assert window.first[stream] or rows[0] == at[stream] + 1
            at[stream] = rows[-1]
            seen |= set(rows.tolist())
    assert seen == set(range(sum(lengths)))


def test_lanes_are_a_function_of_their_seed():
    walks = []
    for seed in ((0, 0), (0, 0), (0, 1)):
        streams = lanes_of(frames(3, 5, 9), 2, 4, seed)
        walks.append(np.stack([streams.next().rows for _ in range(20)]))
    assert np.array_equal(walks[0], walks[1])
    assert not np.array_equal(walks[0], walks[2])


def test_a_waiting_robot_counts_less_and_one_that_moves_with_covered_cameras_does_not():
    same = np.append(np.zeros(200, np.int64), np.arange(200, 400))
    covered = replace(frames(400), view=same)
    assert not covered.still.any()
    still = replace(covered, idle=np.ones(400, bool))
    feed = SequenceFeed(still, lanes_of(still, 1, 400, (0,)), 0.1, dict)
    torch.manual_seed(0)
    kept = feed.kept(np.arange(400))
    assert 30 < (kept < 200).sum() < 70  # a quarter of 200
    assert (kept >= 200).sum() == 200


def test_a_memory_foresees_where_the_tool_goes_until_the_episode_ends():
    walk = frames(100)
    walk.state[:, 0] = 0.01 * np.arange(100)
    feed = SequenceFeed(walk, lanes_of(walk, 1, 4, (0,)), 0.1, dict)
    policy, one = tiny_policy(memory="gru", memory_cells_side=0, memory_details=1), torch.zeros(1, 16)
    percept = Sight(cognition=one, keypoints=one, pictures=torch.zeros(1, 9, 16), reading=one)
    for layer in policy.model.recall.foresight.parameters():
        torch.nn.init.zeros_(layer)
    # it says "nowhere"; from step 80 on the tool goes 8, 16, 19 and again 19 cm, in units of 0.1 m
    far = torch.tensor([0.8, 1.6, 1.9, 1.9])
    expected = F.smooth_l1_loss(far, torch.zeros(4)) / 3  # one of three axes
    assert feed.foresight_loss(policy.model, percept, np.array([80])).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("dropout", [0.0, 0.4, 0.99])
def test_the_reading_is_withheld_at_a_share_of_the_observations_but_never_at_all_of_them(dropout):
    walk = frames(100)
    feed = SequenceFeed(walk, lanes_of(walk, 1, 4, (0,)), 0.1, dict, memory_dropout=dropout)
    told = []

    class Model:
        def loss(self, batch, percept):
            told.append((len(batch["action"]), percept.reading is not None, percept.cognition[:, 0].tolist()))
            return batch["action"].mean()

    rows = torch.arange(1000.0)
    percept = Percept(cognition=rows[:, None], pictures=torch.zeros(1000, 1, 1), reading=torch.zeros(1000, 1))
    torch.manual_seed(0)
    assert feed._loss(Model(), {"action": rows}, percept).item() == pytest.approx(rows.mean().item())
    assert sorted(row for *_, which in told for row in which) == rows.tolist()
    with_memory = sum(n for n, remembered, _ in told if remembered)
    assert with_memory >= 1 and abs(with_memory / 1000 - (1 - dropout)) < 0.05
    assert len(told) == (1 if dropout == 0 else 2)


def test_gradients_pass_through_k_writes():
    policy = tiny_policy(memory="gru", memory_cells_side=0, memory_details=1)
    streams = lanes_of(frames(6), 1, 6, (0,))
    feed = SequenceFeed(streams=streams, frames=frames(6), step_s=0.1, preprocess=dict, gradient_steps=2)
    feature = torch.randn(6, 32, requires_grad=True)
    percept = Percept(cognition=torch.randn(6, 16), pictures=torch.zeros(6, 9, 16), feature=feature)
    feed.read(policy.model, percept, torch.zeros(6, 11), streams.next(), np.arange(6))[5].sum().backward()
    assert (feature.grad.abs().sum(1) > 0).tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize("gradient_steps", [0, 4])
def test_what_counts_is_read_where_it_counts(gradient_steps):
    policy = tiny_policy(memory="bank", memory_cells_side=0, memory_details=1, memory_steps=3)
    walk, feature, readings = frames(5, 8), torch.randn(13, 32), []
    few = np.array([0, 4, 5, 11])
    for kept in (np.arange(13), few):
        feed = SequenceFeed(walk, lanes_of(walk, 2, 8, (2,)), 0.1, dict, gradient_steps)
        window = feed.streams.next()
        assert sorted(window.valid.sum(1)) == [5, 8]
        rows = torch.from_numpy(window.rows[window.valid])
        percept = Percept(cognition=feature[rows, :16], pictures=torch.zeros(13, 9, 16), feature=feature[rows])
        readings.append(feed.read(policy.model, percept, torch.zeros(13, 11), window, kept))
    torch.testing.assert_close(readings[1][few], readings[0][few])
    assert not readings[1][[1, 12]].any()  # nobody asked


def test_an_episode_read_in_windows_is_the_episode_read_whole():
    policy = tiny_policy(memory="bank", memory_cells_side=0, memory_details=1, memory_steps=3)
    feature = torch.randn(6, 32)
    readings = []
    for size in (6, 4):
        streams = lanes_of(frames(6), 1, size, (0,))
        feed = SequenceFeed(frames(6), streams, 0.1, dict)
        parts = []
        for _ in range(-(-6 // size)):
            window = streams.next()
            rows = torch.from_numpy(window.rows[window.valid])
            pictures = torch.zeros(len(rows), 9, 16)
            percept = Percept(cognition=feature[rows, :16], pictures=pictures, feature=feature[rows])
            kept = np.arange(len(rows))
            parts.append(feed.read(policy.model, percept, torch.zeros(len(rows), 11), window, kept))
        readings.append(torch.cat(parts))
    torch.testing.assert_close(*readings)


class Nothing(SequenceMemory):
    """Reads what it sees now, and keeps nothing."""

    CONTENT = ()

    def __init__(self):
        super().__init__()
        self.see = torch.nn.Linear(FEATURE, DIM)

    def begin(self, batch):
        return {"nothing": torch.zeros(batch)}

    def write(self, state, moment):
        return state

    def read(self, state, query, now):
        return self.see(now.feature)


CHUNKS = ChunksConfig(FEATURE, DIM, heads=2, chunks=4, length=3, read=2)
SOLVERS = {
    "bank, overfull": lambda: Bank(BankConfig(DIM, 2, details=2, steps=6, events=3)),
    "gru": lambda: Gru(FEATURE, DIM, 2 * DIM),
    "fast_forgetful": lambda: FastForgetful(FEATURE, DIM),
    "hcam": lambda: TimeChunks(CHUNKS),
    "frame_stack, long enough": lambda: FrameStack(FEATURE, DIM, LENGTH),
}


@functools.cache
def learned(name):
    """Return the trained memory called so, and its answer."""
    torch.manual_seed(0)
    memory = SOLVERS[name]()
    return memory, learn(memory, FEATURE, DIM)


def score(answer, reading, cue):
    return (answer(reading).argmax(1) == cue).float().mean().item()


@pytest.mark.parametrize("name", SOLVERS)
def test_a_memory_recalls_the_cue(name):
    memory, answer = learned(name)
    moments, cue = episodes(400, FEATURE, torch.Generator().manual_seed(1))
    assert score(answer, ask(memory, moments, DIM)[0], cue) > 0.95


@pytest.mark.parametrize(
    "make",
    [Nothing, lambda: FrameStack(FEATURE, DIM, LENGTH - 1), lambda: PlaceChunks(CHUNKS)],
    ids=["nothing", "a frame stack one step too short", "one place, long since overwritten"],
)
def test_what_no_longer_holds_the_cue_cannot(make):
    torch.manual_seed(0)
    memory = make()
    answer = learn(memory, FEATURE, DIM)
    moments, cue = episodes(400, FEATURE, torch.Generator().manual_seed(1))
    assert score(answer, ask(memory, moments, DIM)[0], cue) < 0.4  # chance is 1/4


def test_without_its_bank_or_with_another_episode_s_the_answer_is_gone():
    memory, answer = learned("bank, overfull")
    moments, cue = episodes(400, FEATURE, torch.Generator().manual_seed(1))
    _, state = ask(memory, moments, DIM)
    query, now = torch.ones(400, DIM), moments.at(-1)

    def left(spoilt):
        return score(answer, memory.read(spoilt, query, now), cue)

    assert left(state) > 0.95
    assert left(memory.begin(400)) < 0.4
    assert left(choose(torch.ones(400, dtype=bool), {k: v.roll(1, 0) for k, v in state.items()}, state)) < 0.4
    assert left({k: torch.randn_like(v) if k in memory.CONTENT else v for k, v in state.items()}) < 0.4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_recall_dataset(tmp_path_factory.mktemp("recall") / "data")


def config(dataset, out, **fields):
    small = {
        "steps": 6, "batch_size": 8, "window": 4, "memory": "bank", "n_action_steps": 1, "image_size": 32,
        "model": MODEL, "log_steps": 2, "random_shift": 0, "idle_actions": True,
    }  # fmt: skip
    return TrainConfig(dataset=str(dataset), out=str(out), **{**small, **fields})


def state(folder):
    return load_file(folder / "resume" / "state.safetensors")


def test_a_resumed_run_with_memory_ends_in_the_same_bits(dataset, tmp_path):
    main(config(dataset, tmp_path / "whole"))
    main(config(dataset, tmp_path / "parts", stop_after=4))  # in mid-episode: 9 steps are windows of 4, 4 and 1
    main(config(dataset, tmp_path / "parts", resume=True))
    whole, parts = state(tmp_path / "whole"), state(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert "carried.0.cognitive.feature" in whole
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.fixture(scope="module")
def begun(dataset, tmp_path_factory):
    out = tmp_path_factory.mktemp("begun") / "out"
    main(config(dataset, out, stop_after=1))
    return out


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"balance": 1.0}, "balance was 0.5, now 1.0"),
        ({"emphasis": (("do as you were shown", 2.0),)}, r"emphasis was \[\], now \[\['do as you were shown', 2.0\]\]"),
        ({"seed": 7}, "seed was 0, now 7"),
        ({"window": 2}, "window was 4, now 2"),
        ({"batch_size": 16}, "batch_size was 8, now 16"),
        ({"idle_actions": False}, "idle_actions was True, now False"),
        ({"keyframes": 0.5}, "keyframes was 0.0, now 0.5"),
        ({"start_from": "engram"}, "start_from was , now [0-9a-f]{12}: would be another training"),
        ({"model": (("adaptive_m", 0.5),)}, "model was "),
        ({"n_action_steps": 2}, "n_action_steps was 1, now 2"),
        ({"memory": "gru"}, "memory was bank, now gru"),
        ({"steps": 400}, "steps was 6, now 400"),
        ({"minutes": 1.0}, "minutes was 0.0, now 1.0"),
        ({"warmup_steps": 7}, "warmup_steps was 100, now 7"),
        ({"memory_dropout": 0.9}, "memory_dropout was 0.0, now 0.9"),
        ({"weight_decay": 0.5}, "weight_decay was 0.001, now 0.5"),
        ({"ema_decay": 0.0}, "ema_decay was 0.998, now 0.0"),
        ({"gradient_norm": 0.001}, "gradient_norm was 1.0, now 0.001"),
        ({"precision": "bfloat16"}, "precision was auto, now bfloat16"),
    ],
)
def test_a_run_does_not_go_on_with_other_samples(dataset, begun, changed, named):
    before = state(begun)
    with pytest.raises(InvalidInputError, match=named):
        main(config(dataset, begun, resume=True, **changed))
    after = state(begun)
    assert all(torch.equal(before[name], after[name]) for name in before)


def saved_as(begun, out, change):
    """Copy the training that has ``begun`` to ``out``, with progress that ``change`` was done to."""
    shutil.copytree(begun, out)
    path = out / "resume" / "progress.json"
    progress = json.loads(path.read_text())
    change(progress)
    path.write_text(json.dumps(progress))
    return out


def test_a_run_does_not_go_on_on_another_dataset_of_the_same_length(dataset, begun, tmp_path):
    out = saved_as(begun, tmp_path / "out", lambda progress: progress["walk"].update(dataset="another"))
    with pytest.raises(InvalidInputError, match=r"out: dataset was another, now [0-9a-f]{64}: would be another"):
        main(config(dataset, out, resume=True))


def test_progress_that_cannot_be_read_is_named(dataset, begun, tmp_path):
    out = saved_as(begun, tmp_path / "out", lambda progress: None)
    (out / "resume" / "progress.json").write_text('{"step": 1')
    with pytest.raises(WeightsError, match=r"out/resume/progress.json: cannot be read"):
        main(config(dataset, out, resume=True))


def test_a_process_killed_as_it_replaced_a_checkpoint_leaves_one_to_go_on_from(dataset, begun, tmp_path):
    out = saved_as(begun, tmp_path / "out", lambda progress: None)
    (out / "resume").rename(out / "resume.replaced")
    (out / "resume.77.partial").mkdir()
    main(config(dataset, out, resume=True, stop_after=2))
    assert json.loads((out / "resume" / "progress.json").read_text())["step"] == 2
    assert not list(out.glob("resume.*"))


def test_a_run_does_not_go_on_with_other_frames(dataset, begun, tmp_path):
    out = saved_as(begun, tmp_path / "out", lambda progress: progress["walk"].update(frames=7))
    with pytest.raises(InvalidInputError, match=r"out: frames was 7, now \d\d.*; choose another folder"):
        main(config(dataset, out, resume=True))


def test_a_run_of_before_its_samples_were_noted_is_begun_anew(dataset, begun, tmp_path):
    out = saved_as(begun, tmp_path / "out", lambda progress: progress.pop("walk"))
    with pytest.raises(InvalidInputError, match=r"progress.json: was saved by an older version.*; begin anew in"):
        main(config(dataset, out, resume=True))


FREE = {
    *("dataset", "out", "cache", "start_from", "resume", "stop_after", "device", "evaluate", "processes"),
    *("learning_rate", "checkpoint_minutes", "log_steps"),
}


def test_every_setting_is_either_fixed_or_known_to_be_free():
    """Of the free ones dataset, start_from and processes are compared by what they are, not by their names."""
    assert {field.name for field in fields(TrainConfig)} - FREE == set(FIXED)


def test_a_setting_that_an_older_version_did_not_note_counts_as_unchanged(dataset, begun, tmp_path):
    def forget(progress):
        for name in LATER:
            del progress["walk"][name]

    out = saved_as(begun, tmp_path / "out", forget)
    main(config(dataset, out, resume=True, stop_after=2, learning_rate=1e-4))
    assert json.loads((out / "resume" / "progress.json").read_text())["step"] == 2


def test_what_cannot_go_on_is_said_before_processes_begin(dataset, begun, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.multiprocessing, "spawn", lambda *_, **__: pytest.fail("processes began"))
    out = saved_as(begun, tmp_path / "out", lambda progress: progress.update(processes=2))
    with pytest.raises(InvalidInputError, match="seed was 0, now 7"):
        main(config(dataset, out, resume=True, processes=2, seed=7))
    with pytest.raises(WeightsError, match="no checkpoint to resume from"):
        main(config(dataset, tmp_path / "none", resume=True, processes=2))
    assert not (tmp_path / "none").exists()


def test_processes_that_fail_leave_no_file_of_their_meeting(dataset, tmp_path, monkeypatch):
    def spawn(_, args, nprocs):
        Path(args[3].removeprefix("file://")).touch()
        raise RuntimeError("a process failed")

    monkeypatch.setattr(torch.multiprocessing, "spawn", spawn)
    with pytest.raises(RuntimeError, match="a process failed"):
        main(config(dataset, tmp_path / "out", processes=2))
    assert not (tmp_path / "out").exists()


def test_two_processes_each_carry_their_own_episodes(forked, dataset, tmp_path):
    main(config(dataset, tmp_path / "two", processes=2, steps=5, stop_after=2))
    saved = state(tmp_path / "two")
    assert not torch.equal(saved["carried.0.cognitive.feature"], saved["carried.1.cognitive.feature"])
    with pytest.raises(InvalidInputError, match="trained by 2 processes, cannot go on with 1"):
        main(config(dataset, tmp_path / "two", steps=5, resume=True))


def test_a_policy_without_memory_can_be_given_one(dataset, tmp_path):
    main(config(dataset, tmp_path / "plain", memory="none", window=0, steps=2))
    trainer = Trainer(config(dataset, tmp_path / "grown", start_from=str(tmp_path / "plain" / "policy")))
    plain = load_file(tmp_path / "plain" / "policy" / "model.safetensors")
    grown = trainer.policy.state_dict()
    assert all(torch.equal(plain[name], grown[name]) for name in plain)


def test_a_policy_can_be_told_the_order_of_its_context_later(dataset, tmp_path):
    main(config(dataset, tmp_path / "plain", steps=1))
    told = (*MODEL, ("context_ranks", 4), ("context_places", 2))
    trainer = Trainer(config(dataset, tmp_path, start_from=str(tmp_path / "plain" / "policy"), model=told))
    plain, grown = load_file(tmp_path / "plain" / "policy" / "model.safetensors"), trainer.policy.state_dict()
    assert grown.keys() - plain.keys() == {"model.memory.rank", "model.memory.where.weight"}
    assert all(torch.equal(plain[name], grown[name]) for name in plain if not name.startswith(CONTEXT))


def test_a_reader_of_the_context_that_never_learnt_begins_anew_and_another_goes_on(dataset, tmp_path):
    main(config(dataset, tmp_path / "plain", steps=1))
    folder = tmp_path / "plain" / "policy"
    weights = load_file(folder / "model.safetensors")
    for gate in (0.0, 0.1):
        changed = {**weights, GATE: torch.full_like(weights[GATE], gate)}
        save_file(changed, folder / "model.safetensors")
        begun = Trainer(config(dataset, tmp_path, start_from=str(folder), seed=3)).policy.state_dict()
        same = [torch.equal(begun[name], changed[name]) for name in changed if name.endswith("memory.project.weight")]
        assert same == [gate > 0]
        assert all(torch.equal(begun[name], changed[name]) for name in changed if not name.startswith(CONTEXT))


def test_a_policy_that_goes_on_learning_normalises_as_it_learned_to(dataset, tmp_path):
    main(config(dataset, tmp_path / "first", steps=1))
    other = make_recall_dataset(tmp_path / "other", episodes=1, length=5)  # other statistics
    main(config(other, tmp_path / "more", steps=1, start_from=str(tmp_path / "first" / "policy")))
    first, more = (
        {path.name: load_file(path) for path in (tmp_path / run / "policy").glob("policy_*.safetensors")}
        for run in ("first", "more")
    )
    assert first.keys() == more.keys() and len(first) == 2
    for name, tensors in first.items():
        assert all(torch.equal(tensor, more[name][key]) for key, tensor in tensors.items())


def test_a_policy_with_one_memory_can_be_given_another(dataset, tmp_path):
    main(config(dataset, tmp_path / "bank", steps=1))
    old = load_file(tmp_path / "bank" / "policy" / "model.safetensors")
    for memory in ("bank", "gru", "none"):
        trainer = Trainer(config(dataset, tmp_path, memory=memory, start_from=str(tmp_path / "bank" / "policy")))
        new = trainer.policy.state_dict()
        kept = {name for name in new if name in old and torch.equal(old[name], new[name])}
        zero = {name for name in new if name.startswith("model.recall.likeness.bend.")}  # begins so in both
        assert kept - zero == {n for n in set(new) - zero if memory == "bank" or not n.startswith("model.recall.")}


def test_a_frozen_perception_stays_and_is_what_it_would_be_anew(dataset, tmp_path):
    main(config(dataset, tmp_path / "bank", steps=1))
    fields = {"memory": "gru", "start_from": str(tmp_path / "bank" / "policy"), "freeze_perception": True}
    trainer = Trainer(config(dataset, tmp_path, frozen_draws=1, **fields))
    before = {name: tensor.clone() for name, tensor in trainer.policy.state_dict().items()}
    trainer.update()
    after = trainer.policy.state_dict()
    changed = {name.split(".")[1] for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"recall", "state", "head"}
    assert_kept_as_anew(trainer)


def assert_kept_as_anew(trainer):
    """Assert that what is kept of views is what the policy makes of them now."""
    rows, device, model = np.array([0, 1, 2, 8, 9]), torch.device("cpu"), trainer.policy.model.eval()
    kept = trainer.feed.perceive(model, rows, device)
    trainer.feed.percepts = None
    anew = trainer.feed.perceive(model, rows, device)
    torch.testing.assert_close(vars(kept), vars(anew), atol=2e-2, rtol=1e-2)  # half precision


def offer_context(frames, seed=0):
    """Return ``frames`` with two entries of memory/context at each, of three embeddings, older by 0.1 s a frame."""
    rng, n = np.random.default_rng(seed), len(frames)
    things = rng.standard_normal((3, 384), dtype=np.float32)
    builder = ContextBuilder()
    for part in np.split(np.arange(n), [n // 3]):
        which = rng.integers(3, size=(len(part), 2))
        age = (0.1 * part[:, None] + np.zeros(2)).astype(np.float32)
        place = rng.standard_normal((len(part), 2, 3), dtype=np.float32)
        builder.add(things[which], age, place, np.ones((len(part), 2), bool))
    return replace(frames, context=builder.built())


def test_embeddings_of_a_context_are_kept_once(dataset, tmp_path):
    offered = offer_context(frames(30))
    assert offered.context.embeddings.shape == (3, 384)
    offered.context.save(tmp_path)
    rows = np.array([29, 3, 3])
    loaded, kept = ContextRows.load(tmp_path).at(rows), offered.seen(rows)
    assert all(np.array_equal(loaded[key], kept[key]) for key in loaded)
    assert kept["observation.memory.age_s"][:, 0].tolist() == pytest.approx([2.9, 0.3, 0.3])


@pytest.mark.parametrize("frozen", [False, True])
def test_images_are_encoded_once_and_the_context_is_read_at_every_frame(dataset, tmp_path, frozen):
    trainer = Trainer(config(dataset, tmp_path))
    model, device = trainer.policy.model.eval(), torch.device("cpu")
    torch.nn.init.ones_(model.memory.gate)
    trainer.feed.frames = offer_context(replace(trainer.frames, view=np.zeros(len(trainer.frames), np.int64)))
    if frozen:
        trainer.feed.freeze(model, device)
    looks = []
    model.encoders[0].register_forward_hook(lambda *_: looks.append(len(_[1][0])))
    rows = np.array([0, 1, 2])
    percept = trainer.feed.perceive(model, rows, device)
    assert looks == ([] if frozen else [1])  # the three frames show the same
    seen = trainer.feed.preprocess(trainer.feed.frames.seen(rows))
    seen |= {key: value[:1].expand_as(value) for key, value in seen.items() if key.startswith("observation.images.")}
    anew = model.perceive(seen)
    torch.testing.assert_close(percept.cognition, anew.cognition, atol=2e-2, rtol=1e-2)  # frozen: half precision
    torch.testing.assert_close(percept.feature, anew.feature, atol=2e-2, rtol=1e-2)
    assert (percept.cognition[0] - percept.cognition[1]).abs().max() > 0.1  # what they remember differs


def test_reading_the_context_is_learnt_while_perception_is_frozen(dataset, tmp_path):
    trainer = Trainer(config(dataset, tmp_path, freeze_perception=True, perception_share=0.5, steps=8))
    trainer.feed.frames = trainer.frames = offer_context(trainer.frames)
    trainer.share = 0.6
    trainer.update()
    gate = trainer.policy.model.memory.gate.detach().clone()
    trainer.update()
    assert not torch.equal(gate, trainer.policy.model.memory.gate)


def sight(policy):
    return {n: w.clone() for n, w in policy.state_dict().items() if n.split(".")[1] not in LEARNT}


def test_perception_learns_in_the_first_share_of_a_training_and_then_stays(dataset, tmp_path):
    trainer = Trainer(config(dataset, tmp_path, steps=8, freeze_perception=True, perception_share=0.5, frozen_draws=1))
    fresh = sight(trainer.policy)
    for _ in range(5):  # the step is counted after the share is told
        trainer.update()
    assert trainer.feed.percepts is None
    learnt = sight(trainer.ema)
    assert not all(torch.equal(fresh[name], learnt[name]) for name in fresh)
    trainer.update()
    frozen = trainer.policy.state_dict()
    assert all(torch.equal(learnt[name], frozen[name]) for name in learnt)
    trainer.update()
    assert all(torch.equal(learnt[name], seen) for name, seen in sight(trainer.ema).items())
    assert_kept_as_anew(trainer)


@pytest.mark.parametrize("stop", [3, 6])
def test_a_run_resumes_to_the_same_bits_before_and_after_perception_is_frozen(dataset, tmp_path, stop):
    fields = {"steps": 8, "freeze_perception": True, "perception_share": 0.5}
    main(config(dataset, tmp_path / "whole", **fields))
    main(config(dataset, tmp_path / "parts", stop_after=stop, **fields))
    main(config(dataset, tmp_path / "parts", resume=True, **fields))
    whole, parts = state(tmp_path / "whole"), state(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def understand_a_part(rank, meeting, root, found):
    """Freeze what the policy sees as process ``rank`` of three, and write down which parts were kept."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=3)
    trainer = Trainer(config(root, f"{found}.out"))
    trainer.feed.freeze(trainer.policy.model, torch.device("cpu"), part=(rank, 3))
    save_file(trainer.feed.percepts._parts, f"{found}.{rank}")
    torch.distributed.destroy_process_group()


def test_processes_share_the_work_of_understanding_every_view(forked, dataset, tmp_path):
    trainer = Trainer(config(dataset, tmp_path))
    trainer.feed.freeze(trainer.policy.model, torch.device("cpu"))
    alone = trainer.feed.percepts._parts
    assert len(alone["cognition"]) % 3  # the parts are not alike
    torch.multiprocessing.spawn(understand_a_part, (tmp_path / "meeting", dataset, tmp_path / "found"), nprocs=3)
    for rank in range(3):
        found = load_file(f"{tmp_path / 'found'}.{rank}")
        for name, tensor in alone.items():
            torch.testing.assert_close(found[name], tensor, atol=1e-3, rtol=1e-3)


def test_a_frozen_perception_keeps_every_view_in_several_augmentations(dataset, tmp_path):
    main(config(dataset, tmp_path / "bank", steps=1))
    trainer = Trainer(config(dataset, tmp_path, start_from=str(tmp_path / "bank" / "policy")))
    rows, device, model = np.full(2, 9), torch.device("cpu"), trainer.policy.model
    kept = []
    for _ in range(2):  # a run that resumes understands every view alike
        trainer.feed.freeze(model, device, draws=3)
        torch.manual_seed(0)
        kept.append(torch.stack([trainer.feed.perceive(model, rows, device).keypoints for _ in range(32)]))
    assert torch.equal(*kept)
    assert torch.equal(kept[0][:, 0], kept[0][:, 1])  # in one window a view that stays the same stays the same
    assert len(kept[0][:, 0].unique(dim=0)) == 3


def test_a_turning_point_is_where_the_action_changes_or_soon_will():
    action = np.zeros((12, 7))
    action[5:9, 0] = 0.25  # half a turn at 5, and at 9 where it stops; the gripper's change at 1 is none
    action[1:, 6] = 1.0
    last = np.array([9] * 10 + [11] * 2)
    expected = [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0]
    np.testing.assert_allclose(turning_points(action, last), expected)
    action[10, 1] = 3.0  # an episode begins with a turn; it counts once
    np.testing.assert_allclose(turning_points(action, last), [*expected[:10], 1.0, 1.0])


def test_turning_points_all_count_and_of_other_steps_a_share(dataset, tmp_path):
    feed = Trainer(config(dataset, tmp_path, keyframes=0.75)).feed
    turn = turning_points(feed.frames.action, feed.frames.last)
    moving = feed.frames.view == np.arange(len(feed.frames))
    rows = np.flatnonzero(moving & (turn < 0.25))[1:]
    assert len(rows)
    torch.manual_seed(0)
    kept = np.mean([len(feed.kept(np.append(0, rows))) - 1 for _ in range(400)]) / len(rows)
    assert kept == pytest.approx(0.25, abs=0.05)
    sharp = np.flatnonzero(turn == 1.0)
    assert set(feed.kept(sharp)) == set(range(len(sharp)))


def test_half_precision_leaves_the_memory_in_single(dataset, tmp_path):
    trainer = Trainer(config(dataset, tmp_path, precision="bfloat16"))
    assert np.isfinite(trainer.update())
    assert all(tensor.dtype == torch.float32 for tensor in trainer.feed.carried.values())


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"window": 0}, InvalidInputError, "memory 'bank' learns from steps in a row: set window"),
        ({"window": 9}, InvalidInputError, "window: 9, expected 0..8"),
        ({"freeze_perception": True}, InvalidInputError, "freeze_perception: needs start_from"),
        ({"perception_share": 0.5}, InvalidInputError, "perception_share: .* needs freeze_perception"),
        (
            {"perception_share": 1.0, "freeze_perception": True},
            InvalidInputError,
            "perception_share: 1.0, expected at least 0 and below 1",
        ),
        ({"keyframes": 1.0}, InvalidInputError, "keyframes: 1.0, expected at least 0 and below 1"),
        ({"frozen_draws": 0}, InvalidInputError, "frozen_draws: 0, expected at least 1"),
        ({"memory": "elephant"}, UnknownNameError, "unknown memory 'elephant'"),
        ({"precision": "int4"}, UnknownNameError, "unknown precision 'int4'"),
    ],
)
def test_wrong_settings_are_named(dataset, tmp_path, fields, error, words):
    with pytest.raises(error, match=words):
        main(config(dataset, tmp_path, **fields))


def last_action(trainer, end):
    """Return the action (dimension 0) at frame ``end``."""
    policy = trainer.policy.eval()
    with torch.no_grad():
        batch = of_shrunk_images(trainer.preprocess)(trainer.frames.batch(np.array([end]), 2))
        chunk = policy.predict_action_chunk(batch, torch.zeros(1, 2, 7), None)
    return float(trainer.postprocess(chunk)[0, 0, 0])


def test_without_memory_both_episodes_end_alike(dataset, tmp_path):
    trainer = Trainer(config(dataset, tmp_path, memory="none", steps=5, batch_size=36, window=9))
    for _ in range(5):
        trainer.update()
    assert last_action(trainer, 8) == last_action(trainer, 17)
