"""What a process sets for itself."""

import sys
import threading

from engram.runtime.own_process import import_ahead


def test_modules_are_imported_in_the_calling_thread_and_one_that_is_missing_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import threading; THREAD = threading.current_thread()")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    import_ahead(("no_such_module", "slow_to_load"))
    assert sys.modules["slow_to_load"].THREAD is threading.current_thread()
    assert set(sys.modules) - before == {"slow_to_load"}
    del sys.modules["slow_to_load"]
