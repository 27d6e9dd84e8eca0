"""The page of the nodes is what the code says; test_reference.py compares it with the file."""

from engram.app.node_reference import NODES, nodes_page, parameters
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig


def test_every_parameter_is_described():
    configs = [(cls.config_class, "") for cls in NODES] + [(c, p) for cls in NODES for p, c in cls.sections.items()]
    for config, prefix in [*configs, (LifecycleManagerConfig, "")]:
        for name, _, _, text in parameters(config, prefix):
            assert len(text) > 10, f"{config.__name__}: {name} has no description"


def test_some_rows_are_known_by_heart():
    rows = nodes_page().splitlines()
    assert "| `port` | `8080` | 1 .. 65535 | TCP port of the page. |" in rows
    assert any(row.startswith("| `safety.stale_after_s` | `0.5` |") for row in rows)
    assert any(row.startswith("| `command` | trajectory_msgs/JointTrajectory | safety -> sim, robot |") for row in rows)
