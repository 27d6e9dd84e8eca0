"""A local Ray of two workers comes to the same verdict; what cannot run there is named."""

import os
import sys

import pytest

from engram.app.cli import main
from engram.core.errors import EngramError
from engram.validation.ray_pool import ray_pool
from engram.validation.trials import IDLE, Contender
from engram.validation.validate import validate
from tests.validation.made import BASE, here
from tests.validation.ray_jobs import die_once, fail, where
from tests.validation.test_validate import LENIENT, STILL, told

pytestmark = pytest.mark.timeout(600)


def test_the_verdict_is_that_of_processes_of_our_own(tmp_path, monkeypatch):
    with monkeypatch.context() as m:  # that of our processes is the same: see test_validate.py
        m.setattr("engram.validation.validate.spawned_pool", here)
        ours = validate(STILL, BASE, ("reach",), tmp_path / "ours", LENIENT)
    rays = validate(STILL, BASE, ("reach",), tmp_path / "rays", LENIENT, workers=2, ray="local")
    assert told(rays) == told(ours) and rays.report["episodes_run"] == ours.report["episodes_run"] > 0
    assert (rays.decision, rays.environment) == (ours.decision, ours.environment)


def test_policies_travel_lost_trials_are_run_again_and_other_code_is_refused(tmp_path):
    with pytest.raises(EngramError, match="ray 'local': no such place"), ray_pool("local", 2) as pool:
        ran = [pool.submit(where, who).result() for who in (BASE, Contender(IDLE))]
        assert "model.safetensors" in ran[0][1] and "card.json" in ran[0][1] and ran[1][1] == []
        assert os.getpid() not in {process for process, _ in ran}
        assert pool.submit(die_once, BASE, str(tmp_path / "died")).result() == BASE.sha256
        assert (tmp_path / "died").exists()
        here, pool.environment = pool.environment, "another"
        with pytest.raises(EngramError, match="has other code, MuJoCo or assets"):
            pool.submit(where, BASE).result()
        pool.environment = here
        pool.submit(fail, BASE).result()


def test_without_ray_or_a_cluster_it_is_told(tmp_path, monkeypatch, capsys):
    words = ["validate", "engram", "--tasks", "reach", "--work", str(tmp_path), "--ray"]
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        assert main([*words, address]) == 2
        assert f"ray '{address}': no cluster answers there: [Errno 111]" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*words, "auto"]) == 2
    assert "pip install ray" in capsys.readouterr().err
