"""A mark names the process that runs a node, as long as it runs, and no other."""

import signal

import pytest

from engram.runtime.process_mark import ProcessMark, end_process, has_ended, marks_folder, running_process

NODE = "/r2/memory_node"
pytestmark = pytest.mark.usefixtures("marks")


@pytest.mark.parametrize("stopped", [False, True])
def test_the_process_that_is_marked_is_killed_even_if_it_stands_still(holder, stopped):
    if stopped:
        holder.send_signal(signal.SIGSTOP)
    assert running_process(NODE, 54) == holder.pid
    assert end_process("/memory_node", 54) is None  # another robot's
    assert end_process(NODE, 55) is None  # another domain's
    assert not has_ended(NODE, 54)
    assert end_process(NODE, 54) == holder.pid
    assert holder.wait(60) == -signal.SIGKILL
    assert end_process(NODE, 54) is running_process(NODE, 54) is None
    assert has_ended(NODE, 54) and not has_ended("/memory_node", 54)


def test_a_mark_without_its_lock_names_nobody(holder):
    """A file that a killed process left, whose process id another process got."""
    path = marks_folder() / "54.policy_node"
    path.write_text(str(holder.pid))
    assert end_process("/policy_node", 54) is None
    assert holder.poll() is None


def test_the_second_node_of_a_name_takes_nobodys_mark(holder):
    second = ProcessMark(NODE, 54)
    second.release()
    assert end_process(NODE, 54) == holder.pid


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_start(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/nowhere")
    ProcessMark(NODE, 54).release()
    assert end_process(NODE, 54) is None
