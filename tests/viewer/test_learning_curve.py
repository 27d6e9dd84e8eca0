"""The page's learning curve: how goals went, where other weights began to drive, and a person's help."""

import urllib.parse
import xml.etree.ElementTree as ElementTree

from engram.runtime.curve_note import CURVE, Went
from engram.viewer.learning_curve import HELP_HEX, curve_html, curve_svg
from engram.viewer.learning_tabs import learner_html
from engram.viewer.values import NodeState

GOALS = [Went("v1", "0")] * 10 + [Went("<v2>", "1")] * 10


def polylines(goals):
    drawn = ElementTree.fromstring(curve_svg(goals))
    lines = [node for node in drawn.iter() if node.tag.endswith("polyline")]
    return {line.get("stroke"): [tuple(map(float, p.split(","))) for p in line.get("points").split()] for line in lines}


def test_the_curve_rises_with_the_success_of_the_last_ten():
    (line,) = polylines(GOALS).values()
    heights = [y for _, y in line]
    assert heights[:10] == [heights[0]] * 10 and heights[10:] == sorted(heights[10:], reverse=True)
    assert heights[19] < heights[14] < heights[0]  # up is less
    assert line[0][0] < line[-1][0]
    assert polylines(GOALS[:1])


def test_other_weights_and_help_are_told():
    assert curve_svg(GOALS).count("stroke-dasharray") == 1 and "&lt;v2&gt;" in curve_svg(GOALS)
    helped = [*GOALS, Went("<v2>", "h")]
    assert HELP_HEX in polylines(helped) and HELP_HEX not in polylines(GOALS)
    text = curve_html(helped)
    assert "Of the newest 21 goals 10 were reached by the weights alone, 1 with a person" in text
    assert "<v2>" not in urllib.parse.unquote(text)


def test_the_learning_tab_shows_it_once_there_are_goals():
    learner = NodeState("learner_node", "ok", "active", {CURVE: "v1 0011"})
    assert "Of the newest 4 goals 2 were reached" in learner_html(learner, ())
    assert "newest" not in learner_html(NodeState("learner_node", "ok", "active", {CURVE: "x"}), ())
