"""The architecture page says which room may import which, as import-linter checks it."""

from tests.docs.rooms import PAGE, layers, may_import, with_table


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == with_table(PAGE.read_text()), "run: python -m tests.docs.rooms"


def test_arrows_known_by_heart():
    assert may_import("core") == ["config"]
    assert "sim" not in may_import("policies")
    assert "policies" not in may_import("sim")
    assert "engram" not in layers()[0]
    assert {"core", "memory", "policies", "sim"} <= set(may_import("runtime"))
