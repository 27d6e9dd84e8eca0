"""An observation is of bounded size: of too many objects the best stay, and what they lack is missing for no reason."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import (
    MOST_OBJECTS,
    MOST_SKILLS,
    DetectedObject,
    Embodiment,
    Pose,
    SceneObservation,
    Skill,
    best_scores,
)

VIEW = {"image_size": (64, 64), "depth_grid": np.ones((8, 8), np.float32)}


def boxes(*scores):
    return tuple(DetectedObject(f"box {i}", Pose(np.zeros(3)), score) for i, score in enumerate(scores))


def test_the_highest_scores_stay_in_their_order_and_of_equal_ones_the_first():
    assert best_scores([0.1, 0.9, 0.5, 0.9, 0.5], 3) == [1, 2, 3]
    assert best_scores([np.nan, 0.0], 1) == [1]
    assert best_scores([], 3) == []


def test_an_observation_of_as_many_objects_as_it_holds_keeps_its_view():
    scene = SceneObservation(0, objects=boxes(*[0.5] * MOST_OBJECTS), **VIEW)
    assert scene.has_view and scene.left_out == 0 and len(scene.objects) == MOST_OBJECTS


def test_of_more_objects_the_best_stay_and_no_other_one_counts_as_missing():
    """A detector that suppresses no overlapping boxes: 8,400 of them."""
    scores = np.linspace(0.0, 0.5, 8400)
    scores[7] = 0.9
    scene = SceneObservation(0, objects=boxes(*scores), **VIEW)
    assert [seen.label for seen in scene.objects] == ["box 7", *(f"box {i}" for i in range(8145, 8400))]
    assert scene.left_out == 8400 - MOST_OBJECTS and not scene.has_view


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"camera": "x" * 201}, r"SceneObservation.camera: 'x+', expected 0\.\.200 characters"),
        ({"depth_grid": np.zeros((1025, 1024), np.float32)}, "depth_grid: 1049600 cells, expected at most 1048576"),
    ],
)
def test_what_is_too_large_is_named(wrong, said):
    with pytest.raises(InvalidInputError, match=said):
        SceneObservation(0, **wrong)


def test_a_profile_keeps_the_newest_skills_under_short_names():
    skills = tuple(Skill("x" * 500 + str(i), "v" * 500, 1, 1) for i in range(MOST_SKILLS + 9))
    body = Embodiment("arm", skills=skills)
    assert body.skills == skills[9:]
    assert max(len(skill.task) + len(skill.policy_version) for skill in body.skills) == 200
    assert len({skill.task for skill in body.skills}) == MOST_SKILLS
