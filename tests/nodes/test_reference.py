"""The reference page is what the code says."""

from engram.nodes.lifecycle_manager import LifecycleManagerConfig
from engram.nodes.reference import NODES, TARGET, parameters, reference


def test_the_page_is_up_to_date():
    assert TARGET.read_text() == reference(), "run: python -m engram.nodes.reference"


def test_every_parameter_is_described():
    configs = [(cls.config_class, "") for cls in NODES] + [(c, p) for cls in NODES for p, c in cls.sections.items()]
    for config, prefix in [*configs, (LifecycleManagerConfig, "")]:
        for name, _, _, text in parameters(config, prefix):
            assert len(text) > 10, f"{config.__name__}: {name} has no description"


def test_some_rows_are_known_by_heart():
    rows = reference().splitlines()
    assert "| `port` | `8080` | 1 .. 65535 | TCP port of the page. |" in rows
    assert any(row.startswith("| `safety.stale_after_s` | `0.5` |") for row in rows)
    assert any(row.startswith("| `command` | trajectory_msgs/JointTrajectory | safety -> sim, robot |") for row in rows)
