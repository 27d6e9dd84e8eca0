"""The pages of the command line and of the launch arguments are what the code says."""

import pytest

from engram.app.reference import command_line, launch_arguments, pages


@pytest.mark.parametrize(("target", "text"), pages().items(), ids=lambda value: getattr(value, "name", ""))
def test_the_page_is_up_to_date(target, text):
    assert target.read_text() == text, "run: python -m engram.app.reference"


def test_some_rows_of_the_command_line_are_known_by_heart():
    rows = command_line().splitlines()
    assert "### engram memory query" in rows
    assert any(row.startswith("| `QUESTION` |") for row in rows)
    assert any(row.startswith("| `--dataset` | required |") for row in rows)
    assert any(row.startswith("| `--steps` | `12000` |") for row in rows)


def test_launch_arguments_name_no_file_of_this_machine():
    text = launch_arguments()
    assert "| `params_file` | `config/sim.yaml` |" in text
    assert "| `lockstep` | `true` |" in text
    assert "`/clock`" in text and "/.python/" not in text
