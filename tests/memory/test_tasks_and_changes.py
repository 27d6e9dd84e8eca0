"""What the robot did and what changed: questions that only the episodic and the short-term memory can answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.questions import AtTime, Changes, Count, DuringTask, FindObject, Relation, Tasks
from engram.memory.graph.places import table
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.query.language import parse
from engram.memory.query.task_words import contradicts, means
from engram.memory.query.unread import Unread
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from engram.memory.storage.store import GraphStore
from engram.memory.stores.episodic.store import EpisodicConfig
from engram.memory.stores.short_term.store import ShortTermConfig
from tests.memory.scenes import WordEncoder, seen, view

HERE, THERE = (0.5, 0.1, 0.02), (0.65, -0.15, 0.02)
SECOND = 10**9


def made(store=None, **config):
    return RobotMemory(store, RobotMemoryConfig(**config), WordEncoder(), (table(),))


def watch(memory, objects, seconds):
    for second in seconds:
        memory.update(view(objects, second * SECOND))


def lived(store=None, **config):
    """A cup is put away, a bowl comes, the drawer does not open, then it does, while the bowl is taken away."""
    memory = made(store, **config)
    watch(memory, [seen("red cup", HERE)], range(4))
    memory.begin_episode("carry", "put the red cup away", 10 * SECOND)
    watch(memory, [seen("red cup", HERE)], range(11, 13))
    watch(memory, [seen("red cup", THERE)], range(13, 18))
    memory.end_episode("carry", "succeeded", 20 * SECOND, (), "v1")
    watch(memory, [seen("red cup", THERE), seen("blue bowl", HERE)], range(30, 34))
    memory.begin_episode("open_drawer", "open the drawer", 100 * SECOND)
    memory.end_episode("open_drawer", "failed", 110 * SECOND, (), "v2")
    memory.begin_episode("open_drawer", "please open the top drawer", 200 * SECOND)
    watch(memory, [seen("red cup", THERE)], range(201, 208))
    memory.end_episode("open_drawer", "succeeded", 215 * SECOND, (), "v2")
    return memory


def ask(memory, words, now_s=300, limit=5):
    return memory.query(parse(words, now_s * SECOND, limit))


@pytest.fixture(scope="module")
def life():
    return lived()


# -- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ("What did you do?", Tasks()),
        ("what have you been doing", Tasks()),
        ("which tasks did you do", Tasks()),
        ("what happened", Tasks("happened")),
        ("what was the last task", Tasks("last")),
        ("what was the last thing you did", Tasks("last")),
        ("how did it end", Tasks("last")),
        ("how did opening the drawer end", Tasks("last", "opening the drawer")),
        ("when did you last open the drawer", Tasks("last", "open the drawer")),
        ("how long ago did you open the drawer", Tasks("last", "open the drawer")),
        ("when was the drawer last opened", Tasks("last", "opened the drawer")),
        ("did it work?", Tasks("whether")),
        ("did the last task succeed", Tasks("whether")),
        ("did you put the cube into the bin", Tasks("whether", "put the cube into the bin")),
        ("have you already put the cube into the bin", Tasks("whether", "put the cube into the bin")),
        ("did you manage to open the drawer", Tasks("whether", "open the drawer")),
        ("has the drawer been opened", Tasks("whether", "opened the drawer")),
        ("how often did you open the drawer", Tasks("count", "open the drawer")),
        ("how many times have you opened the drawer", Tasks("count", "opened the drawer")),
        ("how many tasks did you do", Tasks("count")),
        ("what was unusual", Tasks("unusual")),
        ("what changed", Changes()),
        ("what has changed recently", Changes()),
        ("did anything change", Changes()),
        ("what moved", Changes("moved")),
        ("which things were moved", Changes("moved")),
        ("what is new", Changes("new")),
        ("what appeared", Changes("new")),
        ("what's gone", Changes("gone")),
        ("what is missing", Changes("gone")),
        ("what happened to the red cup", Changes("changed", "red cup")),
        ("when did the red cup last move", Changes("changed", "red cup")),
        ("what changed during the last task", DuringTask(Changes())),
        ("what moved after you opened the drawer", DuringTask(Changes("moved"), "after", "opened the drawer")),
        ("where was the cup before the last task", DuringTask(FindObject("cup"), "before")),
        ("what was in the drawer while you put the cube away",
         DuringTask(Relation("in", "drawer"), "during", "put the cube away")),
        ("how long ago did you see the red cup", FindObject("red cup")),
        ("how long is it since you last saw the red cup", FindObject("red cup")),
    ],
)  # fmt: skip
def test_sentences_about_tasks_and_changes(words, question):
    assert parse(words, 7) == question.refined(now_ns=7)


@pytest.mark.parametrize(
    "words",
    [
        "did you see the red cup", "have you seen the red cup", "when did you last see the red cup", "is the cup gone",
        "what did you think was in the drawer", "do you know where the cup is", "when was the cup in the sealed box",
        "did you find the cup", "what is the robot holding", "which robot opened the drawer", "how many cups are there",
        "is the drawer open", "what did the robot hold", "where is the new cup", "what is near the last task",
    ],
)  # fmt: skip
def test_no_sentence_of_another_kind_is_taken(words):
    assert not isinstance(parse(words, 7), Tasks | Changes | DuringTask)


def test_a_time_that_is_none_is_named_with_the_forms_that_are_understood(life):
    for words in ("what changed before the meeting", "what did you do before the meeting"):
        assert isinstance(parse(words, 7), Unread)
        with pytest.raises(InvalidInputError, match="'before': not understood as a time; understood are such as 'now'"):
            ask(life, words)
    with pytest.raises(UnknownNameError, match="aspect of tasks 'why'; valid: count, happened"):
        Tasks("why")
    with pytest.raises(UnknownNameError, match="kind of change"):
        Changes("broken")


@pytest.mark.parametrize(
    ("text", "told", "same"),
    [
        ("put the cube into the bin", "pick up the red cube and put it in the bin", True),
        ("placed the cube in the bin", "put the red cube in the bin", True),
        ("put the red cube into the bin", "put the green cube in the bin", False),
        ("stack the red cube on the green cube", "stack the green cube on the red cube", False),
        ("opened the drawer", "please open the top drawer", True),
        ("close the drawer", "open the drawer", False),
        ("pushing the button", "press the red button", True),
        ("press the left button", "press the right button", False),
        ("open drawer", "open_drawer", True),
        ("the", "open the drawer", False),
        ("on", "turn on the stove", False),
        ("put the cube on the table", "take the cube out of the bin and put it on the table", True),
        ("put the cube back in the bin", "put the cube into the bin", True),
        ("put the red cube away", "put the red cube away", True),
        ("turn the stove off", "please turn off the stove", True),
        ("turned off the stove", "turn the stove off, then close the door", True),
        ("turn off the stove", "turn_off_stove", True),
        ("turn on the lamp", "turn on the stove and the lamp", True),
        ("pick up the cube", "grasp the red cube", True),
        ("put the cube down", "place the cube on the table", True),
        ("take out the cube", "take the cube out of the bin", True),
        ("take the cup from the table", "take the cup off the table", True),
        ("move the cube to the bin", "put the cube in the bin", True),
        ("press on the button", "press the red button", True),
        ("put the lid on", "put the lid on the pot", True),
        ("pick the cube", "pick the cube, not the ball", True),
        ("pick up the cup", "pick up the cup without touching the bowl", True),
        ("put the cup on the table", "do not spill the water and put the cup on the table", True),
        ("not open the drawer", "do not open the drawer", True),
    ],
)
def test_all_words_of_a_question_must_be_in_the_task_in_their_order(text, told, same):
    assert means(text, told) is same


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("turn off the stove", "turn on the stove"),
        ("turn the stove off", "turn on the stove"),
        ("turn off the stove", "turn on the stove and switch off the lamp"),
        ("turn off the stove", "switch off the lamp and turn on the stove"),
        ("turn on the stove and turn off the lamp", "turn off the stove and turn on the lamp"),
        ("put the cube in the bin", "take the cube out of the bin and put it on the table"),
        ("take the cube into the bin", "take the cube out of the bin and put it on the table"),
        ("put the cup on the table", "move the cup off the table"),
        ("move the cup off", "move the cup onto the table"),
        ("move the cube to the bin", "move the cube from the bin"),
        ("push the lever down", "push the lever up"),
    ],
)
def test_a_task_that_went_the_other_way_is_not_meant(text, told):
    assert not means(text, told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("open the drawer", "do not open the drawer"),
        ("open the drawer", "don't open the drawer"),
        ("not open the drawer", "open the drawer"),
        ("open the door", "open the drawer but not the door"),
        ("pick the ball", "pick the cube, not the ball"),
        ("touch the bowl", "pick up the cup without touching the bowl"),
        ("spill the water", "do not spill the water and put the cup on the table"),
    ],
)
def test_what_was_told_not_to_be_done_was_not_done(text, told):
    assert not means(text, told)


def test_the_other_way_is_no_such_task():
    memory = made()
    memory.begin_episode("turn_on_stove", "turn on the stove", 10 * SECOND)
    memory.end_episode("turn_on_stove", "succeeded", 20 * SECOND)
    for words in (
        "did you turn off the stove",
        "how often did you turn the stove off",
        "when did you turn off the stove",
    ):
        none = ask(memory, words, 40)
        assert none.text == "I have no task like that in my memory; the most alike is 'turn on the stove'."
        assert none.confidence == 0.0
    assert ask(memory, "did you turn the stove on", 40).text.startswith("Yes: 'turn on the stove' succeeded")


def test_a_robot_that_did_the_other_way_did_not_do_it():
    assert contradicts("turned off the stove", "turn_on_stove") and contradicts("put it in the bin", "take_out_of_bin")
    assert not contradicts("turned off the stove", "turn_off_stove") and not contradicts(
        "turn the stove", "turn_on_stove"
    )
    for words in ("which robot did not open the drawer", "which robots cannot reach the cup"):
        with pytest.raises(InvalidInputError, match=r"^'(?:not|cannot)': not understood; a question is about one kind"):
            parse(words, 7)


def test_last_night_goes_on_after_midnight():
    morning = 1_795_257_000 * SECOND  # 21 November 2026, 10:30 UTC
    memory = made()
    for hours, place in ((14, HERE), (8.5, THERE), (1, THERE)):
        begin = morning - round(hours * 3600) * SECOND
        for second in range(4):
            memory.update(view([seen("red cup", place)], begin + second * SECOND))
    moved = memory.query(parse("what moved last night", morning))
    assert moved.text.startswith("The red cup moved to the table 8 hours ago.")
    memory.begin_episode("open_drawer", "open the drawer", morning - 8 * 3600 * SECOND)
    memory.end_episode("open_drawer", "succeeded", morning - 8 * 3600 * SECOND + SECOND)
    for words in ("did you open the drawer last night", "did you open the drawer at night"):
        assert memory.query(parse(words, morning)).text.startswith("Yes: 'open the drawer' succeeded 8 hours ago")


# -- tasks -----------------------------------------------------------------------------------------------------------


def test_what_was_done_is_told_in_order_with_ends_times_and_what_changed(life):
    found = ask(life, "what did you do")
    assert found.text == (
        "I did 3 tasks: 'put the red cup away' succeeded 5 minutes ago, after 10 seconds (the red cup appeared "
        "(table); the red cup went away; the red cup came back (table)); then 'open the drawer' failed 3 minutes ago, "
        "after 10 seconds (I saw nothing change); then 'please open the top drawer' succeeded 85 seconds ago, "
        "after 15 seconds (the blue bowl went away)."
    )
    assert found.confidence == 1.0
    assert [one.ids[0] for one in found.evidence][:3] == ["episode_000003", "episode_000002", "episode_000001"]
    one = ask(life, "what did you do", limit=1).text
    assert one.startswith("I did 3 tasks, the last of them: 'please open the top drawer' succeeded")


def test_what_was_done_at_a_time_is_what_ran_then(life):
    assert "1 task at that time: 'open the drawer' failed" in ask(life, "what did you do between 90 and 120 s").text
    assert ask(life, "what did you do at 15 s").text.startswith("I did 1 task at that time: 'put the red cup away'")
    none = ask(life, "what did you do at 60 s")
    assert (none.text, none.confidence) == ("I did no task at that time that I know of.", 0.5)


def test_what_happened_outside_of_tasks_is_told_beside_them(life):
    text = ask(life, "what happened between 25 and 120 s").text
    assert text.startswith("I did 1 task at that time: 'open the drawer' failed")
    assert text.endswith("Besides, the blue bowl appeared (table).")
    assert "Besides" not in ask(life, "what did you do between 25 and 120 s").text


def test_the_last_task_is_told_with_begin_end_and_weights(life):
    text = ask(life, "what was the last task").text
    assert text == (
        "'please open the top drawer' succeeded 85 seconds ago, after 15 seconds, from 200.0 s to 215.0 s, with the "
        "weights v2 (the blue bowl went away)."
    )
    assert ask(life, "did it work").text == f"Yes: {text}"
    assert ask(life, "how did the last task end").text == text


def test_whether_a_task_was_done_is_answered_by_its_end(life):
    yes = ask(life, "did you put the red cup away")
    assert yes.text.startswith("Yes: 'put the red cup away' succeeded 5 minutes ago") and yes.confidence == 1.0
    failed = ask(life, "did you open the drawer between 90 and 120 s")
    assert failed.text.startswith("No: 'open the drawer' failed 3 minutes ago")


def test_an_unknown_task_is_no_other_one(life):
    for words in ("did you put the blue cup away", "how often did you put the blue cup away"):
        none = ask(life, words)
        assert none.text == "I have no task like that in my memory; the most alike is 'put the red cup away'."
        assert (none.confidence, none.evidence) == (0.0, ())


def test_how_often_counts_tries_and_successes(life):
    assert ask(life, "how often did you open the drawer").text.startswith("I tried a task like that twice: 1 of 2 succ")
    assert ask(life, "how many tasks did you do").text.startswith("I did 3 tasks: 2 of 3 succeeded; the last, 'please")


def test_how_sure_a_task_is_meant_is_in_the_confidence(life):
    """Its cosine over 0.7, as of objects: "opening the drawer" shares two of three words with what was told."""
    vector = life.scene.embed("opening the drawer")
    alike = max(float(vector @ life.scene.embed(told)) for told in ("please open the top drawer", "open drawer"))
    assert ask(life, "how did opening the drawer end").confidence == pytest.approx(min(1.0, alike / 0.7))


def test_a_task_that_runs_or_was_stopped_is_neither_yes_nor_no():
    memory = made()
    memory.begin_episode("wipe", "wipe the table", 10 * SECOND)
    assert ask(memory, "did you wipe the table", 40).text.startswith(
        "Not yet: 'wipe the table' has been running for 30 seconds"
    )
    memory.end_episode("wipe", "stopped", 50 * SECOND)
    stopped = ask(memory, "did you wipe the table", 60)
    assert stopped.text.startswith("I cannot say: 'wipe the table' was stopped 10 seconds ago")
    assert stopped.confidence == 0.0
    assert "0 of 0 succeeded, 1 did not come to an end" in ask(memory, "how often did you wipe the table", 60).text


def test_forgotten_tasks_are_told_to_be_missing():
    memory = made(episodic=EpisodicConfig(max_episodes=4))
    for i in range(10):
        memory.begin_episode("reach", "reach out", 100 * i * SECOND)
        memory.end_episode("reach", "failed", (100 * i + 50) * SECOND)
    found = ask(memory, "what did you do", 1000)
    assert "Up to 6 more I no longer remember." in found.text and found.confidence == pytest.approx(0.4)
    count = ask(memory, "how often did you reach out", 1000)
    assert "4 times" in count.text and "Up to 6 tasks more" in count.text and count.confidence <= 0.4
    last = ask(memory, "what did you do between 850 s and 960 s", 1000)
    assert "no longer" not in last.text and last.confidence == 1.0


def test_changes_that_were_merged_away_are_no_quiet_task():
    memory = lived(episodic=EpisodicConfig(max_events=2))
    assert len(memory.episodic.events) <= 2
    text = ask(memory, "what did you do between 5 and 20 s").text
    assert text.endswith("succeeded 5 minutes ago, after 10 seconds (I no longer remember what changed).")


def test_false_detections_are_told_of_no_task():
    memory = made()
    memory.begin_episode("wipe", "wipe the table", 0)
    watch(memory, [seen("green cup", THERE, score=0.3)], [1])
    watch(memory, [], range(2, 8))
    memory.end_episode("wipe", "succeeded", 9 * SECOND)
    assert "green" not in ask(memory, "did it work", 10).text


def test_the_most_surprising_events_are_told_first(life):
    found = ask(life, "what was unusual", limit=1)
    best = max(life.episodic.events, key=lambda one: one.surprise)
    assert found.text.startswith("What surprised me most: ") and found.evidence[0].ids[0] == best.id
    assert found.text.count(" ago") == 1


def test_without_episodic_memory_there_are_no_tasks():
    memory = GraphMemory(encoder=WordEncoder())
    assert memory.query(parse("what did you do", 7)).text.startswith("I keep no record of tasks")
    assert memory.query(parse("did you open the drawer", 7)).confidence == 0.0
    during = memory.query(parse("what changed during the last task", 7))
    assert (during.text, during.confidence) == ("I did no task that I know of.", 0.0)


# -- changes ---------------------------------------------------------------------------------------------------------


def test_what_changed_is_what_short_term_memory_holds_newest_first(life):
    found = ask(life, "what changed")
    assert found.text == "The blue bowl went away 98 seconds ago; the red cup came back (table) 5 minutes ago."
    assert [node.label for node in found.nodes] == ["blue bowl", "red cup"]
    assert {one.source for one in found.evidence} == {"short_term"}
    assert found.confidence == pytest.approx(1 - found.nodes[0].belief) and found.age_s == pytest.approx(98, abs=1)
    assert ask(life, "what changed", limit=1).text == "The blue bowl went away 98 seconds ago; 1 more."


def test_what_is_new_moved_or_gone(life):
    assert ask(life, "what is gone").text == "The blue bowl went away 98 seconds ago."
    assert ask(life, "what is new").text == "The red cup came back (table) 5 minutes ago."
    assert ask(life, "what moved").text == "The red cup came back (table) 5 minutes ago."
    assert ask(life, "what happened to the red cup").text == "The red cup came back (table) 5 minutes ago."
    assert ask(life, "what happened to the spoon").text == "I know of nothing like 'spoon'."


def test_what_appeared_and_then_moved_is_new_all_the_same():
    memory = made()
    for second, place in enumerate((HERE, HERE, HERE, (0.5, 0.0, 0.02), (0.5, 0.0, 0.02))):
        watch(memory, [seen("red cup", place)], [second])
    assert ask(memory, "what is new", 10).text.startswith("The red cup appeared and then moved to the table ")
    assert ask(memory, "what is gone", 10).text == "Nothing is gone."


def test_changes_of_a_time_before_the_last_change_come_from_the_history(life):
    """Short-term memory knows of the bowl by now that it is gone, and no more that it came."""
    found = ask(life, "what changed between 25 and 40 s")
    assert found.text == "The blue bowl appeared (table) 4 minutes ago."
    assert {one.source for one in found.evidence} == {"history"}
    assert ask(life, "what moved between 5 and 20 s").text.startswith("The red cup moved to the table 5 minutes ago")
    assert ask(life, "what changed since 150 s").evidence[0].source == "short_term"
    assert ask(life, "what changed between 50 and 90 s").text == "Nothing changed at that time."


def test_a_question_about_a_task_is_one_about_its_time(life):
    assert ask(life, "what changed during the last task").text == "The blue bowl went away 98 seconds ago."
    assert ask(life, "what is new before you opened the drawer").text.startswith("The blue bowl appeared (table)")
    assert ask(life, "what is new after you put the red cup away").text == "Nothing is new at that time."  # gone by now
    before, after = (
        ask(life, f"where was the red cup {side} you put the red cup away") for side in ("before", "after")
    )
    assert before.nodes[0].pose.position[1] == pytest.approx(0.1, abs=0.01)
    assert after.nodes[0].pose.position[1] == pytest.approx(-0.15, abs=0.01)
    assert ask(life, "what changed while you wiped the table").text.startswith("I have no task like that in my memory")


def things(memory, count, begin_s=0):
    """Show a red cup and one thing more every 10 s."""
    there = [seen("red cup", HERE)]
    for i in range(count):
        there.append(seen(f"thing {i}", (0.3 + 0.08 * i, 0.0, 0.02)))
        watch(memory, there, range(begin_s + 10 * i, begin_s + 10 * i + 3))


def test_what_eviction_dropped_is_told_to_be_missing_and_is_found_by_its_time():
    told = {}
    for policy in ("newest", "learned"):
        memory = made(short_term=ShortTermConfig(capacity=2, eviction=policy))
        watch(memory, [seen("red cup", HERE)], range(3))
        for second in range(10, 30):
            ask(memory, "where is the red cup", second)
        things(memory, 4, 100)
        told[policy] = ask(memory, "what changed", 200)
        assert "had no room in my short-term memory: ask about a time" in told[policy].text
        assert "red cup appeared" in ask(memory, "what changed since 0 s", 200, limit=9).text.lower()
    assert "red cup" in told["learned"].text.lower()  # it was asked for
    assert "red cup" not in told["newest"].text.lower()


def test_changes_outlive_a_restart_with_what_was_dropped(tmp_path):
    store = GraphStore(tmp_path)
    config = {"short_term": ShortTermConfig(capacity=2)}
    memory = lived(store, **config)
    things(memory, 3, 400)
    words = ("what changed", "what is new", "what did you do", "how often did you open the drawer", "what was unusual")
    before = [ask(memory, one, 600) for one in words]
    assert "no room" in before[0].text
    memory.commit()
    memory.close()
    store.close()
    again = made(GraphStore(tmp_path), **config)
    assert [ask(again, one, 600).text for one in words] == [one.text for one in before]
    again.scene.store.close()


def test_what_was_glimpsed_once_did_perhaps_not_come():
    memory = made()
    watch(memory, [seen("red cup", HERE)], range(3))
    watch(memory, [seen("red cup", HERE), seen("blue bowl", THERE, score=0.3)], [3])
    found = ask(memory, "what is new", 5)
    odds = 8**0.3 / 9
    told = "The red cup appeared (table) 5 seconds ago; the blue bowl may have changed, but I am not sure."
    assert found.text == told
    assert [node.label for node in found.nodes] == ["red cup"]
    assert found.confidence == pytest.approx(found.nodes[0].belief / (1 + odds))


def test_what_the_history_does_not_know_is_said():
    memory = made()
    assert ask(memory, "what changed since 1 s", 5).text == "Nothing changed at that time. I saw nothing before that."
    watch(memory, [seen("red cup", HERE)], range(100, 103))
    early = ask(memory, "what is new between 50 and 120 s", 130)
    assert early.text == "The red cup appeared (table) 30 seconds ago. I saw nothing before 30 seconds ago."
    small = made(graph=GraphMemoryConfig(budget_mb=0.2))
    for move in range(200):
        watch(small, [seen("red cup", HERE if move % 2 else THERE)], range(10 * move, 10 * move + 3))
    thinned = ask(small, "what moved between 100 s and 200 s", 2000, limit=1)
    assert small.tracker.history.thinned_ns is not None and "was thinned: changes may be missing." in thinned.text
    assert "thinned" not in ask(small, "what moved between 1900 s and 2000 s", 2000).text


def test_without_short_term_memory_changes_need_a_time():
    memory = GraphMemory(encoder=WordEncoder(), places=(table(),))
    watch(memory, [seen("red cup", HERE)], range(3))
    assert memory.query(parse("what changed", 7 * SECOND)).text.startswith("I keep no recent changes")
    new = memory.query(parse("what is new since 0 s", 7 * SECOND))
    assert new.text.startswith("The red cup appeared (table) 7 seconds ago")


def test_how_long_ago_is_when(life):
    ago, when = (ask(life, f"{words} see the red cup") for words in ("how long ago did you", "when did you last"))
    assert ago.text == when.text and "last seen 93 seconds ago" in ago.text


def test_times_and_counts_of_objects_are_as_they_were():
    assert parse("how many cups are on the table", 7) == Count("cups", "on", "table", now_ns=7)
    assert isinstance(parse("what changed since 3 s", 7 * SECOND), AtTime)
    asked = parse("what changed since 3 s", 7 * SECOND, 3)
    assert (asked.limit, asked.question) == (3, replace(Changes(), limit=3, now_ns=7 * SECOND))
