"""The zero-shot detector: real loading and post-processing on tiny random weights, geometry by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.geometry import from_frame, project
from engram.perception.zero_shot import ZeroShotDetector, ZeroShotDetectorConfig
from tests.contracts.detector import DetectorContract
from tests.perception.synthetic import box, render, table
from tests.perception.tiny_models import save_grounding_dino, save_owlvit


@pytest.fixture(scope="module")
def owlvit(tmp_path_factory):
    return str(save_owlvit(tmp_path_factory.mktemp("owlvit") / "model"))


@pytest.fixture(scope="module")
def grounding_dino(tmp_path_factory):
    return str(save_grounding_dino(tmp_path_factory.mktemp("dino") / "model"))


def scene(size=128):
    return render([table(), box((0.5, 0.1, 0.02), (0.04,) * 3, "red", 0.2)], size=size)


class TestOwlViT(DetectorContract):
    @pytest.fixture(autouse=True)
    def _model(self, owlvit):
        self.config = ZeroShotDetectorConfig(model=owlvit, prompts=("red cube", "cup"), threshold=0.0)

    def make(self):
        return ZeroShotDetector(self.config)

    def frame(self):
        return scene()


class TestGroundingDino(DetectorContract):
    @pytest.fixture(autouse=True)
    def _model(self, grounding_dino):
        self.config = ZeroShotDetectorConfig(
            model=grounding_dino, prompts=("red cube", "cup"), threshold=0.0, text_threshold=0.0
        )

    def make(self):
        return ZeroShotDetector(self.config)

    def frame(self):
        return scene()


class Pointing(ZeroShotDetector):
    """Says what the model would: one box, where the test points."""

    window = np.zeros(4)

    def _boxes(self, frame):
        return [("red cube", 0.9, self.window)]


def around(frame, centre, half):
    corners = centre + half * np.array(np.meshgrid((-1, 1), (-1, 1), (-1, 1))).reshape(3, -1).T
    pixels = project(from_frame(corners, frame.pose), frame.intrinsics)
    return np.concatenate((pixels.min(axis=0), pixels.max(axis=0)))


def test_a_box_in_the_picture_becomes_a_body_in_space(owlvit):
    frame = scene(256)
    detector = Pointing(ZeroShotDetectorConfig(model=owlvit))
    detector.window = around(frame, np.array([0.5, 0.1, 0.02]), 0.03)
    (cube,) = detector.detect(frame).objects
    assert (cube.label, cube.score) == ("red cube", 0.9)
    np.testing.assert_allclose(cube.pose.position, (0.5, 0.1, 0.02), atol=0.004)
    np.testing.assert_allclose(cube.size, 0.04, atol=0.008)
    assert cube.color.argmax() == 0


def test_a_box_around_bare_table_lies_on_the_table(owlvit):
    frame = scene(256)
    detector = Pointing(ZeroShotDetectorConfig(model=owlvit))
    detector.window = around(frame, np.array([0.5, -0.2, 0.0]), 0.03)
    (flat,) = detector.detect(frame).objects
    assert abs(flat.pose.position[2]) < 0.005
    np.testing.assert_allclose(flat.pose.position[:2], (0.5, -0.2), atol=0.02)


def test_a_box_without_depth_is_left_out(owlvit):
    frame = scene()
    detector = Pointing(ZeroShotDetectorConfig(model=owlvit))
    detector.window = np.array([3.0, 3.0, 4.0, 4.0])
    assert detector.detect(frame).objects == ()


def test_overlapping_boxes_are_one(owlvit):
    config = ZeroShotDetectorConfig(model=owlvit, prompts=("red cube",), threshold=0.0, overlap=0.01)
    loose = ZeroShotDetectorConfig(model=owlvit, prompts=("red cube",), threshold=0.0, overlap=1.0)
    assert len(ZeroShotDetector(config)._boxes(scene())) < len(ZeroShotDetector(loose)._boxes(scene()))


@pytest.mark.parametrize("prompts", [(), ("cube", " ")])
def test_empty_prompts_are_refused(prompts):
    with pytest.raises(InvalidInputError, match="prompts"):
        ZeroShotDetectorConfig(prompts=prompts)


@pytest.mark.parametrize("name", ["threshold", "text_threshold", "overlap"])
def test_a_share_outside_of_0_to_1_is_refused(name):
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInputError, match=f"ZeroShotDetectorConfig.{name}: {value}, expected 0 to 1"):
            ZeroShotDetectorConfig(**{name: value})


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_named(owlvit, device):
    with pytest.raises(InvalidInputError, match=rf"ZeroShotDetectorConfig.device: '{device}' \(.*\); valid: cpu"):
        ZeroShotDetector(ZeroShotDetectorConfig(model=owlvit, device=device))


def test_an_unknown_model_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="nothing_here"):
        ZeroShotDetector(ZeroShotDetectorConfig(model=str(tmp_path / "nothing_here")))
