"""A detector of your own: finds what is red in the picture. The depth image tells where it is and how large.

    engram up sim detector:=examples.detector:RedThings task:=reach
    engram eval engram --tasks reach --episodes 5 --detector examples.detector:RedThings
    engram record --root data/red --tasks reach --episodes 50 --reconstruction --detector examples.detector:RedThings

A detector takes a CameraFrame (colour, depth, intrinsics, pose of the camera) and returns a SceneObservation: the
objects, and what was looked at, because a place that is seen to be empty is evidence, too.
"""

import numpy as np
from scipy.spatial.transform import Rotation

from engram import CameraFrame, DetectedObject, Detector, SceneObservation
from engram.core.errors import InvalidInputError
from engram.core.geometry import backproject, make_pose, to_frame
from engram.perception.embedding import default_text_encoder
from engram.perception.scene import scene_observation

LABEL = "red thing"
FEWEST_PIXELS = 20


class RedThings(Detector):
    """Reports everything red in the picture as one object."""

    def __init__(self) -> None:
        self.embedding = default_text_encoder().encode([LABEL])[0]  # (384,): questions about it are answered by this

    def detect(self, frame: CameraFrame) -> SceneObservation:
        """Return the object in ``frame``, or none."""
        if frame.depth is None:
            raise InvalidInputError(f"camera {frame.name!r}: no depth image, expected one")
        red, green, blue = np.moveaxis(frame.color.astype(int), -1, 0)
        seen = (red > 80) & (red > 2 * green) & (red > 2 * blue) & (frame.depth > 0)
        if seen.sum() < FEWEST_PIXELS:
            return scene_observation(frame, ())
        points = to_frame(backproject(frame.depth, frame.intrinsics), frame.pose)[seen]  # (n, 3) m, base_link
        low, high = np.percentile(points, (2, 98), axis=0)
        thing = DetectedObject(
            label=LABEL,
            score=0.9,
            pose=make_pose((low + high) / 2, Rotation.identity()),
            position_covariance=np.diag(((high - low) / 4) ** 2),
            size=high - low,
            color=frame.color[seen].mean(axis=0) / 255,
            embedding=self.embedding,
        )
        return scene_observation(frame, (thing,))
