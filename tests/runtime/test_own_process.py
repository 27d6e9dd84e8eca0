"""What a process sets for itself."""

import sys
import time

from engram.runtime.own_process import load_ahead


def test_modules_are_loaded_while_the_process_goes_on_and_one_that_is_missing_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import time; time.sleep(0.2); LOADED = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    began = time.monotonic()
    load_ahead("no_such_module", "slow_to_load")
    assert time.monotonic() - began < 0.2
    while not hasattr(sys.modules.get("slow_to_load"), "LOADED"):
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    del sys.modules["slow_to_load"]
