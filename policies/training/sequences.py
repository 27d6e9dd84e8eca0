"""Whole episodes for training a sequence memory: windows of consecutive steps, with the memory's state carried from one
window to the next.

LeRobot shuffles frames. Here, each of several streams goes through one episode after the other. Which episodes a stream
walks through is a function of (seed, rank, stream), so that a resumed run walks on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.sequence_memory import State, spread
from engram.policies.training.frames import Frames, on_device
from engram.policies.training.processes import gather_rows
from engram.policies.vla.contract import STATE_KEY, Percept, RememberingNetwork
from engram.policies.vla.network import Sight
from engram.policies.vla.recall import FORESIGHT_STEPS, FORESIGHT_UNIT_M

STILL_SHARE = 0.25
"""Share of the frames at which the robot waits that count in the loss."""
TURN_STEPS = 4
"""A step is a turning point if the demonstrated action changes there or within so many steps, as many as a chunk
executes."""
TURN = 0.5
"""Change of the action from one step to the next that makes a full turning point (full speed has a length of 1)."""
KEPT_PARTS = ("cognition", "keypoints", "pictures", "colours")
"""The part of a percept that does not depend on the trained memory."""
LEARNT_KEYS = (STATE_KEY, "action", UNLEARNT_KEY)


@dataclass(frozen=True)
class Window:
    """The next T steps of every stream; an episode that ends sooner leaves the rest of its row empty."""

    rows: np.ndarray  # (streams, T) int64 frames; 0 where empty
    valid: np.ndarray  # (streams, T) bool
    first: np.ndarray  # (streams,) bool: an episode begins here
    step: np.ndarray  # (streams,) int64: steps since the episode began, at the window's first


class EpisodeStreams:
    """Goes through whole episodes, drawn with the frames' sampling weights, in windows of T steps."""

    def __init__(self, frames: Frames, streams: int, window: int, weights: np.ndarray, seed: tuple[int, ...]) -> None:
        """``weights`` (n,) are the frames' sampling weights."""
        self.window = window
        self._ends = np.unique(frames.last)
        self._begins = np.append(0, self._ends[:-1] + 1)
        # an episode's probability is that of one of its frames, because it is then used whole
        chance = np.cumsum(weights[self._begins])
        self._chance = chance / chance[-1]
        self._draws = [np.random.default_rng((*seed, stream)) for stream in range(streams)]
        self._at = [0] * streams  # next frame
        self._episode = [-1] * streams  # -1: draw one

    def next(self) -> Window:
        """Return the next window and move on."""
        shape = (len(self._at), self.window)
        rows, valid = np.zeros(shape, np.int64), np.zeros(shape, bool)
        first, step = np.zeros(len(self._at), bool), np.zeros(len(self._at), np.int64)
        for stream, draw in enumerate(self._draws):
            if self._episode[stream] < 0:
                self._episode[stream] = int(np.searchsorted(self._chance, draw.random(), side="right"))
                self._at[stream] = int(self._begins[self._episode[stream]])
                first[stream] = True
            begin, last = self._begins[self._episode[stream]], self._ends[self._episode[stream]]
            at = self._at[stream]
            n = min(self.window, int(last) + 1 - at)
            rows[stream, :n], valid[stream, :n], step[stream] = np.arange(at, at + n), True, at - begin
            self._at[stream] += n
            if self._at[stream] > last:
                self._episode[stream] = -1
        return Window(rows, valid, first, step)


class Percepts:
    """The encodings of all images by a network with frozen perception, computed once and kept in half precision.

    With several ``draws``, each image is encoded in that many augmentations, and each window uses a random one. The
    trained part then does not overfit to one encoding of an image.
    """

    def __init__(
        self,
        frames: Frames,
        model: RememberingNetwork,
        preprocess: Callable[[Any], Any],
        device: torch.device,
        draws: int = 1,
        part: tuple[int, int] = (0, 1),
        block: int = 256,
    ) -> None:
        """One draw is the image as it is. A view takes some 9 kB a draw. ``part`` is a process's rank among how many:
        each understands its share, and all get the whole."""
        views, self._index = np.unique(frames.view, return_inverse=True)
        self._views, self._draws = len(views), draws
        rank, world = part
        n = draws * len(views)
        mine = np.split(np.resize(views, -(-n // world) * world), world)[rank]  # begins anew to come out even
        parts = []
        training = model.training
        model.train(draws > 1)
        torch.manual_seed(draws)  # a run that resumes sees the same
        with torch.no_grad():
            for at in tqdm(range(0, len(mine), block), "understanding every view", disable=rank > 0):
                shown = mine[at : at + block]
                percept = model.look(on_device(preprocess(frames.shown(shown)), device))
                assert isinstance(percept, Sight)
                parts.append(
                    {name: x.half().cpu() for name, x in vars(percept).items() if name in KEPT_PARTS and x is not None}
                )
        model.train(training)
        self._parts = {name: gather_rows(torch.cat([p[name] for p in parts]), world)[:n] for name in parts[0]}

    def of(self, rows: np.ndarray, device: torch.device) -> Percept:
        """Return what frames ``rows`` (n,) were understood as, without memory/context."""
        views, which = np.unique(self._index[rows], return_inverse=True)
        drawn = torch.from_numpy(views)
        if self._draws > 1:
            drawn = drawn + self._views * torch.randint(self._draws, drawn.shape)
        at = drawn[torch.from_numpy(which)]  # a view that stays the same stays the same
        return Sight(**{name: x[at].float().to(device) for name, x in self._parts.items()})


def turning_points(action: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return how much each step (n,) is a turning point of its demonstration, 0 to 1.

    Turning points decide where to go. At most other steps the previous motion predicts the next one, and a policy
    trained on all steps alike learns to continue (Wen et al., "Keyframe-Focused Visual Imitation Learning", 2021).

    Args:
        action: (n, a) the gripper last, which does not count.
        last: (n,) last frame of the frame's episode.
    """
    begins = np.append(True, last[1:] != last[:-1])
    before = np.where(begins[:, None], 0.0, np.roll(action, 1, axis=0))[:, :-1]
    change = np.minimum(1.0, np.linalg.norm(action[:, :-1] - before, axis=1) / TURN)
    ahead = np.minimum(np.arange(len(last))[:, None] + np.arange(TURN_STEPS), last[:, None])
    return change[ahead].max(1)


class SequenceFeed:
    """Losses over windows; what an episode has left in memory is carried, without its gradient, to its next window."""

    def __init__(
        self,
        frames: Frames,
        streams: EpisodeStreams,
        step_s: float,
        preprocess: Callable[[Any], Any],
        gradient_steps: int = 0,
        foresight: float = 0.0,
        keyframes: float = 0.0,
        memory_dropout: float = 0.0,
    ) -> None:
        """``gradient_steps`` is K of truncated backpropagation: gradients pass through so many writes; 0 = a window.

        ``foresight`` is the weight of the auxiliary loss that predicts the tool's future positions. ``keyframes`` is
        the share of steps other than turning points that is left out of the loss. ``memory_dropout`` is the share of
        the observations at which the reading of memory is withheld from the action head.
        """
        self.memory_dropout = memory_dropout
        self.frames, self.streams, self.step_s, self.preprocess = frames, streams, step_s, preprocess
        self.gradient_steps = gradient_steps or streams.window
        self.foresight = foresight
        usual = (1.0 - keyframes) * np.where(frames.still, STILL_SHARE, 1.0)
        self._chance = np.maximum(usual, turning_points(frames.action, frames.last)) if keyframes else usual
        self.carried: State | None = None
        self.percepts: Percepts | None = None

    def freeze(
        self, model: RememberingNetwork, device: torch.device, draws: int = 1, part: tuple[int, int] = (0, 1)
    ) -> None:
        """Encode every image now, in ``draws`` augmentations, because the perception of ``model`` is frozen.

        ``part`` is this process's rank, and how many there are to share the work.
        """
        self.percepts = Percepts(self.frames, model, self.preprocess, device, draws, part)

    def skip(self, windows: int) -> None:
        """Skip windows without encoding them, when a run resumes."""
        for _ in range(windows):
            self.streams.next()

    def loss(self, policy: NetworkPolicy, device: torch.device) -> Tensor:
        """Return the loss of the next window."""
        window, model = self.streams.next(), policy.model
        rows = window.rows[window.valid]
        sample = self.frames.done(rows, policy.config.chunk_size)
        if model.sees_itself:
            sample |= self.frames.seen(rows)
        batch = on_device(self.preprocess(sample), device)
        percept = model.perceive(batch) if model.sees_itself else self.perceive(model, rows, device)
        kept = self.kept(rows)
        if model.recall is not None:
            percept = replace(percept, reading=self.read(model, percept, batch[STATE_KEY], window, kept))
        at = torch.from_numpy(kept).to(device)
        percept = percept.at(at)
        loss = self._loss(model, {key: batch[key][at] for key in LEARNT_KEYS}, percept)
        if model.recall is None or not self.foresight:
            return loss
        return loss + self.foresight * self.foresight_loss(model, percept, rows[kept])

    def _loss(self, model: RememberingNetwork, batch: dict[str, Tensor], percept: Percept) -> Tensor:
        """Return the mean loss of ``batch`` (n,), in a drawn share of which the reading is withheld."""
        if not self.memory_dropout or percept.reading is None:
            return model.loss(batch, percept)
        withheld = torch.rand(len(percept.reading)) < self.memory_dropout
        withheld[0] = False  # every process has gradients of the same weights
        loss = torch.zeros((), device=percept.reading.device)
        for chosen, present in ((~withheld, percept), (withheld, replace(percept, reading=None))):
            if len(at := chosen.nonzero()[:, 0].to(percept.reading.device)):
                part = model.loss({key: value[at] for key, value in batch.items()}, present.at(at))
                loss = loss + part * (len(at) / len(chosen))
        return loss

    def kept(self, rows: np.ndarray) -> np.ndarray:
        """Return which of frames ``rows`` (n,) count in this loss: only a share of those at which the robot waits,
        and of those that are no turning points."""
        drawn = torch.rand(len(rows)).numpy() < self._chance[rows]
        drawn[0] = True  # a window in which nothing happens has a loss, too
        return np.flatnonzero(drawn)

    def perceive(self, model: RememberingNetwork, rows: np.ndarray, device: torch.device) -> Percept:
        """Return the encodings of frames ``rows`` (n,); images that did not change are encoded once, while the tokens
        of memory/context are read at every frame."""
        if self.percepts is not None:
            seen: Percept = self.percepts.of(rows, device)
        else:
            views, which = np.unique(self.frames.view[rows], return_inverse=True)
            looked = model.look(on_device(self.preprocess(self.frames.shown(views)), device))
            seen = looked.at(torch.from_numpy(which).to(device))
        return model.note(model.with_context(seen, on_device(self.frames.offered(rows), device)))

    def foresight_loss(self, model: RememberingNetwork, percept: Percept, rows: np.ndarray) -> Tensor:
        """Return the Huber loss of the predicted future tool positions at frames ``rows`` (n,)."""
        assert model.recall is not None and percept.reading is not None
        foreseen = model.recall.foresee(percept.cognition, percept.reading, percept.pictures, percept.colours)
        coming = np.minimum(rows[:, None] + np.array(FORESIGHT_STEPS), self.frames.last[rows][:, None])
        tool = self.frames.state[:, :3]
        way = (tool[coming] - tool[rows][:, None]) / FORESIGHT_UNIT_M
        return F.smooth_l1_loss(foreseen.float(), torch.from_numpy(way).to(foreseen.device))

    def read(
        self, model: RememberingNetwork, percept: Percept, robot: Tensor, window: Window, kept: np.ndarray
    ) -> Tensor:
        """Write the steps of ``window`` and return what was read after each (n, d), for ``robot`` (n, s).

        Only what was read after steps ``kept`` means anything: the others' is not asked for.
        """
        recall = model.recall
        assert recall is not None and percept.feature is not None
        valid = torch.from_numpy(window.valid).to(robot.device)
        steps = torch.from_numpy(window.step)[:, None] + torch.arange(window.valid.shape[1])
        # empty steps stand at the end of a row: what they write is forgotten as the next episode begins
        feature, query, robots = (spread(x, valid) for x in (percept.feature, percept.cognition, robot))
        asked = torch.zeros(len(robot), dtype=torch.bool, device=robot.device)
        asked[torch.from_numpy(kept).to(robot.device)] = True
        asked = spread(asked[:, None], valid)[..., 0]
        time_s = (steps * self.step_s).to(robot)
        state = recall.begin(torch.from_numpy(window.first).to(robot.device), self.carried)
        readings = []
        with torch.autocast(robot.device.type, enabled=False):  # memory keeps full precision
            for part in torch.arange(valid.shape[1]).split(self.gradient_steps):
                state = {name: tensor.detach() for name, tensor in state.items()}
                inputs = (
                    feature[:, part].float(),
                    query[:, part].float(),
                    robots[:, part],
                    time_s[:, part],
                    asked[:, part],
                )
                reading, state = recall(state, *inputs)
                readings.append(reading)
        self.carried = {name: tensor.detach() for name, tensor in state.items()}
        return torch.cat(readings, dim=1)[valid]
