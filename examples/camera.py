"""A camera of your own: the Panda with a third camera that looks at the table from the side.

Run these in the folder that holds `examples/`, or copy this file anywhere and name it `my_camera:PANDA_WITH_SIDE`:

    engram record --robot examples.camera:PANDA_WITH_SIDE --root data/side --tasks reach --episodes 100
    engram train --dataset data/side --out outputs/side --steps 4000
    engram up sim robot:=examples.camera:PANDA_WITH_SIDE task:=reach

Every part sees the new camera: the topics camera/side/..., tf_static, the page, datasets, Gymnasium's observations.
A trained policy takes the cameras of its training, so the shipped ones go on with the two that they know.
"""

from dataclasses import replace

from engram.core.camera import CameraConfig
from engram.core.robot import PANDA_2F85

SIDE = CameraConfig.looking_at(
    "side",
    position=(0.50, 0.80, 0.50),  # m, base_link: to the left of the table
    target=(0.50, 0.00, 0.05),
    fovy_deg=50.0,
    size=(96, 160),  # height and width [px]
)
"""Give `frame="base"` to mount a camera on the Panda's hand instead; position and target are then in that link."""

PANDA_WITH_SIDE = replace(PANDA_2F85, cameras=(*PANDA_2F85.cameras, SIDE))
"""Perception goes on looking through `front`; `perception_camera="side"` would change that."""
