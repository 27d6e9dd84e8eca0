"""The shipped kind of policy learns from the store, and takes what was learnt."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save_file

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.context_rows import MEMORY_KEYS
from engram.core.errors import InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import MemoryTokens
from engram.learning.algorithms import behavior_cloning
from engram.learning.algorithms.behavior_cloning import BehaviorCloning, BehaviorCloningConfig
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.distillation import distill_head
from engram.learning.algorithms.episode_cloning import SAID, EpisodeCloning
from engram.learning.algorithms.rehearsal import Rehearsal, to_tensors
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import Learner
from engram.learning.learner_config import LearnerConfig
from engram.learning.replay.buffer import IMAGES, EpisodeStream, ReplayBuffer, ReplayConfig, Windows, whole
from engram.learning.replay.episode_batches import gather, window
from engram.learning.weights.manifest import make_manifest
from engram.policies.training.sequences import EpisodeStreams, SequenceFeed
from engram.policies.vla import network
from engram.policies.vla.flow import flow_matching_loss, integrate
from tests.learning.transitions import LINEAGE, episode
from tests.policies.tiny import tiny_vla


@pytest.fixture
def policy():
    return tiny_vla()


@pytest.fixture
def remembering():
    return tiny_vla(memory="bank", memory_steps=4, memory_events=2, memory_details=1)


@pytest.fixture
def store(tmp_path):
    store = ExperienceStore(tmp_path / "store")
    for number in range(4):
        store.append(reach(number))
    store.commit()
    yield store
    store.close()


def reach(number: int):
    """Return an episode with two cameras of 64 px, always the same action."""
    action = np.full(7, 0.5, np.float32)
    return [
        replace(t, images={"front": t.images["front"], "wrist": t.images["front"]}, executed_action=action)
        for t in episode(number, 8, image_size=64)
    ]


CONFIG = LearnerConfig(
    imitate_own=True,
    updates_per_episode=15,
    batch_size=16,
    candidate_updates=60,
    first_episodes=1,
    replay=ReplayConfig(chunk_size=6),
)


def learnt(learner):
    """Take all updates that are paid for and return their losses."""
    losses = []
    while (metrics := learner.step()) is not None:
        losses.append(metrics["loss"])
    return losses


@pytest.mark.parametrize("kind", ["policy", "remembering"])
def test_the_vla_learns_successes_from_the_store_and_loads_the_candidate(kind, request, store, tmp_path):
    policy = request.getfixturevalue(kind)
    trainer = clone_policy(policy, BehaviorCloningConfig(learning_rate=1e-2))
    assert trainer.whole_episodes == policy.remembers == (kind == "remembering")
    learner = Learner(store, policy, trainer, folder=tmp_path / "learner", config=replace(CONFIG, window=4))
    assert learner.poll() == 4
    losses = learnt(learner)
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])

    data, manifest = learner.candidate()
    before = policy.network.state_dict()
    (tmp_path / "candidate.safetensors").write_bytes(data)
    policy.load_weights(tmp_path / "candidate.safetensors", manifest.version)
    assert policy.version == manifest.version
    after = policy.network.state_dict()
    assert set(load(data)) == set(after)
    for part in ("head.", "recall.") if policy.remembers else ("head.",):  # recall: the memory and its gate
        assert any((before[name] != after[name]).any() for name in after if name.startswith(f"model.{part}"))


def test_the_flow_learns_from_where_the_answers_that_are_imitated_were_sampled(policy, store, monkeypatch):
    """From the whole noise it would lead them nearer to their mode with every update."""
    trainer, begun = clone_policy(policy), []
    learner = Learner(store, policy, trainer, config=CONFIG)
    learner.poll()

    def loss(velocity, chunk, start, time, valid=None):
        begun.append(float(start.std()))
        return flow_matching_loss(velocity, chunk, start, time, valid)

    monkeypatch.setattr(network, "flow_matching_loss", loss)
    learner.step()
    assert begun == pytest.approx([policy.network.config.noise_scale] * len(begun), rel=0.05) and begun
    assert policy.network.model.flow_start == 1.0  # in pretraining


OTHERS = ("press the red button", "press the blue button", "open the drawer")
"""Goals that the experience of these tests has not."""


def answers(network, preprocess, store, words):
    """Return the chunks (8, h, a) that ``network`` gives to ``words`` at the steps of the first episode."""
    steps = store.episode(1)
    seen = {f"observation.images.{name}": np.stack([t.images[name] for t in steps]) for name in steps[0].images}
    batch = {key: torch.from_numpy(images.transpose(0, 3, 1, 2).copy()) for key, images in seen.items()}
    batch |= {"observation.state": torch.from_numpy(np.stack([t.state for t in steps])), "task": [words] * len(steps)}
    noise = torch.zeros((len(steps), *network.model.noise_shape))
    return network.predict_action_chunk(preprocess(batch), noise=noise)


def test_who_rehearses_learns_and_keeps_its_answers_to_other_goals(policy, store):
    """The same experience, with and without rehearsal: the goal that is practised gets near to what was done."""
    strayed, learnt_of_it = {}, {}
    for share in (0.0, 0.5):
        policy.instructions = OTHERS
        trainer = clone_policy(policy, BehaviorCloningConfig(learning_rate=1e-2, ema_decay=0.9, rehearsal=share))
        learner = Learner(store, policy, trainer, config=CONFIG)
        learner.poll()
        learnt(learner)

        def moved(words, network=trainer._averaged):
            old, new = (answers(one, policy.preprocess, store, words) for one in (policy.network, network))
            return float((new - old).abs().mean())

        strayed[share] = np.mean([moved(words) for words in OTHERS])
        learnt_of_it[share] = moved(store.episode(1)[0].instruction)
    assert strayed[0.5] < 0.5 * strayed[0.0]
    assert learnt_of_it[0.5] > 0.7 * learnt_of_it[0.0]


def test_a_learner_that_rehearses_goes_on_bit_for_bit(policy, store, tmp_path):
    policy.instructions = OTHERS
    config, losses = replace(CONFIG, updates_per_episode=1), []
    straight = Learner(store, policy, config=config)
    straight.poll()
    expected = learnt(straight)
    for _ in expected:
        learner = Learner(store, policy, folder=tmp_path / "learner", config=config)
        learner.poll()
        losses.append(learner.step()["loss"])
        learner.save()
    assert losses == expected
    assert learner.algorithm.weights() == straight.algorithm.weights()


def test_a_correction_becomes_part_of_the_weights(policy, store):
    """Afterwards the policy answers as the one before, corrected; no success is waited for."""
    correction, words = MotionCorrection(scale=0.5, yaw_rad=0.4), store.episode(1)[0].instruction
    policy.instructions = OTHERS
    trainer = clone_policy(policy)
    learner = Learner(store, policy, trainer, config=CONFIG)
    data, manifest = learner.correct_all(correction)
    assert data == trainer.weights() and manifest.version.startswith("candidate-0000001-")
    assert learner.poll() == 0  # their actions were those of other corrections
    old, new = (answers(one, policy.preprocess, store, words) for one in (policy.network, trainer._averaged))
    before, after = (policy.postprocess(each) for each in (old, new))
    wanted = before.clamp(-1.0, 1.0)
    wanted[..., :3] = wanted[..., :3] @ torch.tensor(correction.matrix(), dtype=wanted.dtype).T
    apart, moved = (after - wanted)[..., :3].abs().mean(), (before - wanted)[..., :3].abs().mean()
    assert apart < 0.2 * moved
    for goal in OTHERS:  # these keep their answers
        old, new = (answers(one, policy.preprocess, store, goal) for one in (policy.network, trainer._averaged))
        assert (policy.postprocess(new) - policy.postprocess(old))[..., :3].abs().mean() < 0.2 * moved


def test_the_head_learns_each_correction_where_it_belongs(policy):
    """In some of what it sees it does half, in some it does twice as much, and elsewhere it answers as before."""
    torch.manual_seed(0)
    network, half, twice = policy.network.model, lambda answers: 0.5 * answers, lambda answers: 2.0 * answers
    width = network.condition(policy.preprocess(to_tensors(seen_by(policy)))).shape[-1]
    of_half, of_twice, of_none = (center + 0.1 * torch.randn(64, width) for center in torch.randn(3, 1, width))
    start = torch.randn(64, *network.noise_shape) * network.config.noise_scale

    def answered(conditions):
        with torch.no_grad():
            return integrate(network.head.at_steps(conditions, network.config.euler_steps), start[:, None])[:, 0]

    before = [answered(each) for each in (of_half, of_twice, of_none)]
    distill_head(network, [(of_half, half), (of_twice, twice)], of_none)
    for conditions, old, factor in zip((of_half, of_twice, of_none), before, (0.5, 2.0, 1.0), strict=True):
        new = answered(conditions)
        apart = {other: float((new - other * old).abs().mean()) for other in (0.5, 2.0, 1.0)}
        assert apart.pop(factor) < 0.5 * min(apart.values())


@pytest.fixture
def reading():
    """A policy that remembers its episode and acts on memory/context."""
    policy = tiny_vla(memory="bank", memory_steps=4, memory_events=2, memory_details=1)
    torch.nn.init.constant_(policy.network.model.memory.gate, 2.0)
    torch.nn.init.normal_(policy.network.model.recall.fuse.weight, std=0.3)
    return policy


def offered(transitions, seed=0):
    """Return ``transitions`` in which memory offered three entries at each step but the first."""
    rng = np.random.default_rng(seed)
    things = rng.standard_normal((3, 384)).astype(np.float32)
    out = []
    for step, one in enumerate(transitions):
        place = rng.standard_normal((3, 3)).astype(np.float32)
        tokens = MemoryTokens(one.stamp_ns, step, things, np.full(3, 0.1 * step), place, np.ones(3, bool), ("",) * 3)
        out.append(replace(one, task="", context=tokens if step else None))  # as a robot's: its words say what it is
    return out


def conditions_of(network, preprocess, transitions):
    """Return what the head is conditioned by (n, c) where ``network`` goes through the episode step by step."""
    state, out = network.model.recall.memory.begin(1), []
    for step, one in enumerate(transitions):
        images = {IMAGES + name: torch.tensor(image.transpose(2, 0, 1))[None] for name, image in one.images.items()}
        batch = images | {"observation.state": torch.tensor(one.state)[None], "task": [one.instruction]}
        if one.context is not None:
            arrays = (one.context.tokens, one.context.age_s, one.context.place, one.context.mask)
            batch |= {key: torch.tensor(array)[None] for key, array in zip(MEMORY_KEYS, arrays, strict=True)}
        inputs = dict(preprocess(batch))
        time = torch.full((1,), step * network.config.step_s)
        with torch.no_grad():
            percept, state = network.model.observe(inputs, state, time)
            out.append(network.model.condition(inputs, percept))
    return torch.cat(out)


def test_the_learner_sees_at_each_step_what_the_policy_that_remembers_and_reads_saw(reading):
    trainer = clone_policy(reading)
    replay = ReplayBuffer(ReplayConfig(chunk_size=6), trainer.shrink)
    replay.add(1, steps := offered(reach(1)))
    found = trainer._condition(whole(replay.get(1)))
    expected = conditions_of(reading.network, reading.preprocess, steps)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(trainer.conditions(replay.get(1)), found)  # what a success classifier learns from
    for spoilt in ([replace(one, context=None) for one in steps], offered(reach(1), seed=1)):
        other = conditions_of(reading.network, reading.preprocess, spoilt)
        assert (other - expected).abs().max() > 1e-2  # it would be seen


def test_a_correction_becomes_part_of_a_policy_that_remembers_and_reads(reading):
    """It answers as before, corrected, at the steps of a whole episode, and as before in those of other goals."""
    correction = MotionCorrection(scale=0.5, yaw_rad=0.4)
    practised = offered(reach(1))
    goals = [[replace(one, instruction=words) for one in offered(reach(2), seed=2)] for words in OTHERS]
    trainer = clone_policy(reading)
    learner = Learner(NoExperience(), reading, trainer, config=CONFIG)
    learner.correct([(correction, practised)], goals)

    def answers(network, steps):
        conditions = conditions_of(network, reading.preprocess, steps)
        start = torch.zeros(len(steps), 1, *network.model.noise_shape)
        with torch.no_grad():
            flow = network.model.head.at_steps(conditions, network.config.euler_steps)
            return reading.postprocess(integrate(flow, start)[:, 0])

    before, after = (answers(network, practised) for network in (reading.network, trainer._averaged))
    wanted = before.clamp(-1.0, 1.0)
    wanted[..., :3] = wanted[..., :3] @ torch.tensor(correction.matrix(), dtype=wanted.dtype).T
    apart, moved = (after - wanted)[..., :3].abs().mean(), (before - wanted)[..., :3].abs().mean()
    assert apart < 0.2 * moved
    for goal in goals:
        old, new = (answers(network, goal) for network in (reading.network, trainer._averaged))
        assert (new - old)[..., :3].abs().mean() < 0.2 * moved
    # what it sees and what it remembers stay as they were
    kept = reading.network.state_dict()
    changed = {name for name, one in trainer._averaged.state_dict().items() if not torch.equal(one, kept[name])}
    assert changed and all(name.startswith("model.head.") for name in changed)


def test_whole_episodes_of_other_goals_are_kept_or_the_practised_ones_with_other_words(reading, monkeypatch):
    reading.instructions = (*OTHERS, "put the red cube in the bin")
    trainer, asked = clone_policy(reading), []

    def condition(self, batch):
        asked.append((batch.episodes[0].instruction, len(batch.episodes[0])))
        return torch.zeros(1, 1)

    monkeypatch.setattr(EpisodeCloning, "_condition", condition)
    monkeypatch.setattr(behavior_cloning, "distill_head", lambda network, seen, kept, check: len(seen))
    learner, half = Learner(NoExperience(), reading, trainer, config=CONFIG), MotionCorrection(scale=0.5)
    practised = [replace(one, instruction="press the red button") for one in offered(reach(1))]
    learner.correct([(half, practised)])
    *words, mine = asked
    assert words == [("put the red cube in the bin", 8), ("open the drawer", 8)] and mine == ("press the red button", 8)
    asked.clear()
    learner.see([[replace(one, instruction="open the drawer") for one in offered(reach(2))], practised])
    learner.correct([(half, practised)])
    assert asked == [("open the drawer", 8), ("put the red cube in the bin", 8), ("press the red button", 8)]


def test_of_many_words_that_no_relation_says_a_few_are_drawn_beside_every_relation(reading, monkeypatch):
    """The policy that remembers was trained on hundreds; each costs a walk through a whole episode."""
    reading.instructions = (
        *(f"remember this {i}" for i in range(50)),
        "put the red cube in the bin",
        "open the drawer",
    )
    trainer, asked = clone_policy(reading), []
    monkeypatch.setattr(
        EpisodeCloning,
        "_condition",
        lambda self, batch: asked.append(batch.episodes[0].instruction) or torch.zeros(1, 1),
    )
    monkeypatch.setattr(behavior_cloning, "distill_head", lambda network, seen, kept, check: len(seen))
    practised = [replace(one, instruction="press the red button") for one in offered(reach(1))]
    for _ in range(2):
        learner = Learner(NoExperience(), reading, trainer, config=CONFIG)
        learner.correct([(MotionCorrection(scale=0.5), practised)])
    first, second = asked[: SAID + 1], asked[SAID + 1 :]
    assert first == second and len(set(first)) == SAID + 1  # with what is practised
    assert {"put the red cube in the bin", "open the drawer"} < set(first)


def test_a_task_is_told_from_others_by_its_name_where_words_say_the_same(reading):
    """Of one task some wordings name a relation, which is that of another task."""
    trainer, replay = clone_policy(reading), ReplayBuffer(ReplayConfig(chunk_size=6))
    replay.add(1, offered(reach(1)))
    one = replay.get(1)
    practised = replace(one, task="touch_unseen", instruction="reach for the red cup")
    reached = replace(one, task="reach", instruction="reach for the red cup")
    unnamed = replace(one, task="reach for the red cup", instruction="reach for the red cup")
    shown = [(whole(practised), MotionCorrection(scale=0.5))]
    assert [each.episodes[0] for each in trainer._asked(shown, [reached, unnamed, practised], lambda: None)] == [
        reached
    ]


def test_what_is_kept_is_drawn_of_each_goal_alike(reading, monkeypatch):
    def condition(self, batch):
        (one,) = batch.episodes
        return torch.full((len(one), 1), one.number)

    monkeypatch.setattr(EpisodeCloning, "_condition", condition)
    trainer, replay = clone_policy(reading), ReplayBuffer(ReplayConfig(chunk_size=6))
    replay.add(1, offered(reach(1)))
    one = replay.get(1)
    said = {"open the drawer": 2, "press the red button": 3, "press the blue button": 4}
    others = [replace(one, number=number, task=words, instruction=words) for words, number in said.items()]
    shown = [(whole(replace(one, task="dance", instruction="dance")), MotionCorrection(scale=0.5))]
    kept = trainer._kept(shown, others, lambda: None)[:, 0].tolist()
    assert kept.count(2) == kept.count(3) + kept.count(4) == 16


def test_experience_without_what_the_policy_read_is_passed_over(reading, store, tmp_path):
    """It would learn to do without. What is stored here is of before that was kept."""
    learner = Learner(store, reading, config=replace(CONFIG, window=4))
    assert learner.poll() == 0 and learner.passed_over == {"nothing read of memory/context": 4}
    with pytest.raises(InvalidInputError, match="no episode that shows where motions are corrected"):
        learner.correct_all(MotionCorrection(scale=0.5))
    newer = ExperienceStore(tmp_path / "newer")
    newer.append(offered(reach(7)))
    newer.commit()
    learner = Learner(newer, reading, config=replace(CONFIG, window=4))
    assert learner.poll() == 1 and np.isfinite(learner.step()["loss"])
    newer.close()


def with_tokens(transitions, width):
    """Return ``transitions``, at the first of which ``width`` numbers of memory were read."""
    first, *rest = transitions
    tokens = MemoryTokens(0, 1, np.ones((1, width)), np.zeros(1), np.zeros((1, 3)), np.ones(1, bool), ("",))
    return [replace(first, context=tokens), *rest]


@pytest.mark.parametrize("width", [7, 384])
def test_tokens_reach_no_policy_that_acts_on_none(policy, tmp_path, width):
    """Whoever sends them: it would learn to act on them, or learn nothing any more."""
    store = ExperienceStore(tmp_path / "store")
    store.append(
        [step for number in range(4) for step in (with_tokens(reach(0), width) if not number else reach(number))]
    )
    store.commit()
    learner = Learner(store, policy, config=CONFIG)
    assert learner.poll() == 4 and not learner.passed_over
    for _ in range(3):
        learner.step()
    assert not learner.algorithm.policy.model.memory.gate.any()
    store.close()


def test_an_episode_whose_tokens_do_not_fit_is_passed_over_and_the_others_are_learnt_from(reading, tmp_path):
    store = ExperienceStore(tmp_path / "store")
    store.append([*with_tokens(reach(0), 7), *offered(reach(1)), *reach(2), *offered(reach(3))])
    store.commit()
    learner = Learner(store, reading, config=replace(CONFIG, window=4))
    assert learner.poll() == 2
    assert learner.passed_over == {"of another shape": 1, "nothing read of memory/context": 1}
    assert np.isfinite(learner.step()["loss"])
    store.close()


def filmed_by(number, *cameras):
    return [replace(step, images=dict.fromkeys(cameras, step.images["front"])) for step in reach(number)]


@pytest.mark.parametrize("algorithm", ["behavior_cloning", "advantage_cloning"])
@pytest.mark.parametrize("kind", ["policy", "remembering"])
def test_an_episode_with_other_cameras_than_the_policy_s_keeps_none_of_the_others_away(
    kind, algorithm, request, tmp_path
):
    policy, store = request.getfixturevalue(kind), ExperienceStore(tmp_path / "store")
    store.append([*filmed_by(0, "front", "side", "wrist"), *filmed_by(1, "front"), *reach(2)])
    store.commit()
    config = replace(CONFIG, window=4)
    learner = Learner(store, policy, algorithm, folder=tmp_path / "learner", config=config)
    assert learner.poll() == 2 and learner.passed_over == {"of another shape": 1}
    assert learner.misfit.startswith("episode 2: no camera wrist; the policy takes front, wrist, the episode has front")
    assert np.isfinite(learner.step()["loss"])
    learner.save()
    (progress,) = (tmp_path / "learner").glob("state-*/progress.json")
    kept = json.loads(progress.read_text())
    assert kept["replay"] == [1, 3]
    progress.write_text(json.dumps(kept | {"replay": [2, 1]}))  # as a buffer that went by its first episode left it
    again = Learner(store, policy, algorithm, folder=tmp_path / "learner", config=config)
    assert again.metrics["replay_steps"] == 8
    store.append(reach(4))
    store.commit()
    assert again.poll() == 1 and again.metrics["replay_steps"] == 16
    assert np.isfinite(again.step()["loss"])
    store.close()


def test_who_acts_on_memory_learns_with_covered_cameras_too(policy, reading, tmp_path):
    covered = [replace(step, source=replace(step.source, covered_cameras=("front",))) for step in offered(reach(0))]
    store = ExperienceStore(tmp_path / "store")
    store.append(covered)
    store.commit()
    blind, seeing = (Learner(store, one, config=replace(CONFIG, window=4)) for one in (reading, policy))
    assert (blind.poll(), seeing.poll()) == (1, 0) and seeing.passed_over == {"covered camera": 1}
    store.close()


def test_a_policy_that_reads_and_remembers_nothing_learns_from_steps_with_what_was_read(tmp_path):
    policy = tiny_vla()
    torch.nn.init.constant_(policy.network.model.memory.gate, 2.0)
    policy.instructions = OTHERS
    trainer = clone_policy(policy)
    replay = ReplayBuffer(ReplayConfig(chunk_size=6), trainer.shrink)
    replay.add(1, offered(reach(1)))
    batch = replay.sample(16, (0,))
    assert batch[MEMORY_KEYS[0]].shape == (16, 3, 384)
    seen = replay.get(1)
    trainer.see([replace(seen, number=2, instruction="open the drawer", context=None)])
    asked = trainer._rehearsal.asked(batch, {"touched"})
    of_drawer = np.array([words == "open the drawer" for words in asked["task"]])
    assert 0 < of_drawer.sum() < 16
    assert not asked[MEMORY_KEYS[3]][of_drawer].any()  # nothing was read there
    np.testing.assert_array_equal(asked[MEMORY_KEYS[0]][~of_drawer], batch[MEMORY_KEYS[0]][~of_drawer])
    withheld = {name: value for name, value in batch.items() if name not in MEMORY_KEYS}
    assert trainer.update(batch, 0)["loss"] != clone_policy(policy).update(withheld, 0)["loss"]


def test_a_correction_that_comes_to_nothing_finite_is_refused_and_changes_nothing(policy, store, monkeypatch):
    monkeypatch.setattr(behavior_cloning.ActionUnits, "corrected", lambda self, answers, correction: answers * np.nan)
    learner = Learner(store, policy, trainer := clone_policy(policy), config=CONFIG)
    before = trainer.save()
    with pytest.raises(WeightsError, match="of a correction, which is left out"):
        learner.correct_all(MotionCorrection(scale=0.5))
    assert trainer.save() == before
    assert (learner.metrics["updates"], learner.metrics["corrections"]) == (0, 0)


def seen_by(policy):
    """Return a batch of one step, as the replay buffer has it."""
    replay = ReplayBuffer(ReplayConfig(chunk_size=6))
    replay.add(1, reach(1))
    return {name: each for name, each in replay.sample(1, (0,)).items() if name not in ("action", UNLEARNT_KEY)}


def test_an_episode_is_learnt_with_the_correction_it_comes_with_and_what_is_practised_is_not_kept(policy, monkeypatch):
    asked = []

    def condition(self, batch):
        asked.append(sorted(set(batch["task"])))
        return torch.zeros(1, 1)

    monkeypatch.setattr(BehaviorCloning, "_condition", condition)
    monkeypatch.setattr(behavior_cloning, "distill_head", lambda network, seen, kept, check: len(seen))
    policy.instructions = (*OTHERS, "put the red cube in the bin")
    learner, half = Learner(NoExperience(), policy, clone_policy(policy), config=CONFIG), MotionCorrection(scale=0.5)
    said = {words: [replace(step, instruction=words) for step in reach(1)] for words in OTHERS}
    learner.correct([(half, said[OTHERS[0]]), (MotionCorrection(yaw_rad=0.4), said[OTHERS[2]]), (half, [])])
    kept, corrected = asked[:48], asked[48:]
    assert corrected == [[OTHERS[0]]] * 24 + [[OTHERS[2]]] * 24
    assert kept == [["put the red cube in the bin"]] * 48
    assert learner.metrics["corrections"] == 1


class NoExperience:
    """Of a robot that has done nothing."""

    id = ""

    def catalogue(self, after=0):
        return ()


def test_a_correction_that_is_cut_short_changes_nothing(policy, store):
    trainer = clone_policy(policy)
    learner = Learner(store, policy, trainer, config=CONFIG)
    before = trainer.save()
    for count in (2, 20, 200):  # while it looks at the episodes, encodes them, trains the head
        left = iter(range(count))

        def check(left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            learner.correct_all(MotionCorrection(scale=0.5), check)
        assert trainer.save() == before and learner.metrics["updates"] == 0


def test_what_a_correction_cannot_become_part_of_is_refused_by_name(policy, store):
    whole = clone_policy(policy)
    trainer = BehaviorCloning(policy.network, policy.preprocess, shrink=whole.shrink, lineage=LINEAGE, chunk_steps=6)
    learner = Learner(store, policy, trainer, config=CONFIG)
    with pytest.raises(
        InvalidInputError, match=r"BehaviorCloning cannot make a correction part of the weights.*search 0"
    ):
        learner.correct_all(MotionCorrection())


def test_what_is_practised_is_not_rehearsed(policy, store):
    words = ("put the red cube in the bin", "drop the blue block in the bin", "open the drawer")
    replay, asked = ReplayBuffer(ReplayConfig(chunk_size=6)), []
    replay.add(1, store.episode(1))

    def preprocess(batch):
        asked.append(batch["task"])
        return policy.preprocess(batch)

    rehearsal = Rehearsal(policy.network, preprocess, words)
    practised = replay.sample(4, (0,)) | {"task": ["place the green cube into the bin"] * 4}
    old = rehearsal.batch(practised)
    assert asked == [["open the drawer"] * 4]
    assert old["action"].shape == (4, 6, 7)
    assert rehearsal.batch(practised | {"task": ["open the drawer", "put the red cube in the bin"] * 2}) is None


def test_a_goal_that_was_carried_out_is_rehearsed_on_what_was_seen_of_it(policy, store):
    words, asked = ("put the red cube in the bin", "open the drawer", "press the red button"), []
    replay = ReplayBuffer(ReplayConfig(chunk_size=6))
    replay.add(1, store.episode(1))
    practised = replay.sample(16, (0,)) | {"task": ["put the red cube in the bin"] * 16}
    known = replay.get(1)
    images = {name: 255 - each for name, each in known.images.items()}
    seen = replace(known, images=images, state=known.state + 7, instruction="open the drawer")

    def preprocess(batch):
        asked.append(batch)
        return policy.preprocess(batch)

    rehearsal = Rehearsal(policy.network, preprocess, words)
    rehearsal.see([seen])
    rehearsal.batch(practised)
    (shown,) = asked
    of_drawer = np.array([each == "open the drawer" for each in shown["task"]])
    assert 0 < of_drawer.sum() < 16
    state = shown["observation.state"].numpy()
    assert {tuple(row) for row in state[of_drawer]} <= {tuple(row) for row in seen.state}
    np.testing.assert_array_equal(state[~of_drawer], practised["observation.state"][~of_drawer])
    for name, each in images.items():
        assert all(any((row == one).all() for one in each) for row in shown[IMAGES + name].numpy()[of_drawer])
    np.testing.assert_array_equal(practised["task"], ["put the red cube in the bin"] * 16)  # as it was


def test_a_memory_learns_on_bit_for_bit_in_mid_episode(remembering, store, tmp_path):
    """An episode has 8 steps, a window 4: every second save falls into the middle of one."""
    config, folder = replace(CONFIG, window=4, updates_per_episode=2), tmp_path / "learner"
    straight = Learner(store, remembering, folder=tmp_path / "straight", config=config)
    straight.poll()
    expected, losses = learnt(straight), []
    for _ in range(8):
        learner = Learner(store, remembering, folder=folder, config=config)
        learner.poll()
        losses.append(learner.step()["loss"])
        learner.save()
    assert losses == expected
    assert learner.algorithm.weights() == straight.algorithm.weights()


def test_a_memory_that_goes_back_begins_its_episodes_again(remembering, store):
    """What the other weights remembered of them is no memory of these."""
    learner = Learner(store, remembering, config=replace(CONFIG, window=4, updates_per_episode=2))
    began = learner.algorithm.weights()
    learner.poll()
    learner.step()
    assert learner.algorithm._carried and learner._stream.places[0][1] == 4
    learner.go_back(began, make_manifest(began, "v0"))
    assert not learner.algorithm._carried and learner.algorithm.weights() == began
    learner.step()
    assert learner._stream.places[0][1] == 4


def test_its_windows_are_those_of_the_offline_training(remembering, store):
    """The same episode, once walked through by the learner's feed and once by that of ``engram train``."""
    replay = ReplayBuffer(ReplayConfig(chunk_size=6), clone_policy(remembering).shrink)
    replay.add(1, store.episode(1))
    model, walk = remembering.network, EpisodeStream(replay, streams=1, window=3)
    windows = [walk.next((0,)) for _ in range(3)]
    frames = gather(windows[0], 0)
    streams = EpisodeStreams(frames, 1, 3, frames.sampling_weights(0.5), (0,))
    offline = SequenceFeed(frames, streams, 0.1, remembering.preprocess, foresight=0.5)
    trainer = EpisodeCloning(model, remembering.preprocess, lineage=LINEAGE)
    for part in windows:
        torch.manual_seed(int(part.at[0]))
        loss, _, trainer._carried = trainer._loss(part)
        torch.manual_seed(int(part.at[0]))
        assert torch.equal(loss, offline.loss(model, torch.device("cpu")))
    assert [int(part.at[0]) for part in windows] == [0, 3, 6]


def test_lanes_of_different_lengths_lie_one_behind_the_other(remembering):
    replay = ReplayBuffer(ReplayConfig(chunk_size=6))
    for number, steps in ((1, 3), (2, 5)):
        replay.add(number, episode(number, steps, image_size=64))
    pair = Windows((replay.get(1), replay.get(2)), np.array([0, 3]), 4)
    rows = window(pair)
    assert rows.valid.tolist() == [[True, True, True, False], [True, True, False, False]]
    assert rows.rows.tolist() == [[0, 1, 2, 0], [6, 7, 0, 0]]
    assert (rows.first.tolist(), rows.step.tolist()) == ([True, False], [0, 3])
    frames = gather(pair, 0)
    assert frames.last.tolist() == [2] * 3 + [7] * 5
    np.testing.assert_array_equal(frames.state[3:], replay.get(2).state)


def test_replay_keeps_images_as_the_policy_sees_them(policy):
    images = np.full((2, 3, 64, 64), 7, np.uint8)
    images[:, :, ::2] = 9
    small = clone_policy(policy).shrink("observation.images.front", images)
    assert (small.shape, small.dtype) == ((2, 3, 32, 32), np.uint8)
    assert (small == 8).all()


def test_weights_of_another_shape_are_refused_by_name_and_the_old_ones_stay(policy, tmp_path):
    other = clone_policy(policy)
    name = next(n for n, p in other.policy.named_parameters() if p.ndim == 2)
    tensors = load(other.weights())
    tensors[name] = tensors[name][:1].copy()
    save_file(tensors, tmp_path / "wrong.safetensors")
    with pytest.raises(WeightsError, match=f"tensor {name!r} has shape"):
        policy.load_weights(tmp_path / "wrong.safetensors", "wrong")
    assert policy.version == "base"
