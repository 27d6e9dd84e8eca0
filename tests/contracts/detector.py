"""The laws that every Detector keeps, whatever it finds."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pytest

from engram.core.contracts import Detector
from engram.core.errors import InvalidInputError
from engram.core.types import CameraFrame


class DetectorContract:
    """Subclass as ``TestX`` and say how to make a detector and a frame in which it finds something."""

    @abstractmethod
    def make(self) -> Detector:
        """Return a fresh detector."""

    @abstractmethod
    def frame(self) -> CameraFrame:
        """Return an RGB-D frame with at least one object in view."""

    def test_the_scene_tells_what_was_looked_at(self):
        frame = self.frame()
        scene = self.make().detect(frame)
        assert (scene.stamp_ns, scene.camera) == (frame.stamp_ns, frame.name)
        assert scene.image_size == (frame.color.shape[1], frame.color.shape[0])
        np.testing.assert_array_equal(scene.intrinsics, frame.intrinsics)
        np.testing.assert_array_equal(scene.camera_pose.position, frame.pose.position)
        assert scene.depth_grid.min() >= 0 and scene.depth_grid.max() <= np.nanmax(frame.depth)

    def test_objects_are_found_in_base_link_with_plausible_values(self):
        objects = self.make().detect(self.frame()).objects
        assert objects
        for found in objects:
            assert found.label and found.pose.frame == "base_link"
            assert (found.size > 0).all() and (found.color >= 0).all() and (found.color <= 1).all()
            np.testing.assert_allclose(np.linalg.norm(found.embedding), 1.0, atol=1e-4)
            np.testing.assert_allclose(found.position_covariance, found.position_covariance.T)
            assert np.linalg.eigvalsh(found.position_covariance).min() > 0

    def test_the_same_frame_gives_the_same_answer_bit_for_bit(self):
        detector, frame = self.make(), self.frame()
        first, second, other = detector.detect(frame), detector.detect(frame), self.make().detect(frame)
        for again in (second, other):
            assert [o.label for o in again.objects] == [o.label for o in first.objects]
            for a, b in zip(first.objects, again.objects, strict=True):
                np.testing.assert_array_equal(a.pose.position, b.pose.position)
                np.testing.assert_array_equal(a.size, b.size)
                np.testing.assert_array_equal(a.embedding, b.embedding)

    def test_pixels_without_return_are_ignored(self):
        frame = self.frame()
        holes = np.random.default_rng(0).random(frame.depth.shape) < 0.03
        depth = frame.depth.copy()
        depth[holes] = np.where(np.arange(holes.sum()) % 2, np.nan, 0.0)
        scene = self.make().detect(_with_depth(frame, depth))
        assert scene.objects
        assert all(np.isfinite(o.pose.position).all() for o in scene.objects)

    def test_a_frame_without_depth_is_refused_by_name(self):
        with pytest.raises(InvalidInputError, match=self.frame().name):
            self.make().detect(_with_depth(self.frame(), None))

    def test_a_frame_without_any_return_has_no_objects(self):
        frame = self.frame()
        assert self.make().detect(_with_depth(frame, np.zeros_like(frame.depth))).objects == ()


def _with_depth(frame: CameraFrame, depth: np.ndarray | None) -> CameraFrame:
    return CameraFrame(frame.name, frame.stamp_ns, frame.color, frame.intrinsics, frame.pose, depth)
