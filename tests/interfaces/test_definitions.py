"""The definitions themselves: documented, the same as ROS's own where ROS has one, and installed as written."""

import hashlib
import importlib.metadata
import json
from pathlib import Path

import pytest

INTERFACES = Path(__file__).parents[2] / "interfaces"
DEFINITIONS = sorted(path for kind in ("msg", "srv", "action") for path in (INTERFACES / kind).iterdir())
OBVIOUS = {"header", "robot_id", "instruction", "context", "reason", "evidence_ids", "policy_version", "accepted"}
# what `ros2 topic info -v /tf` shows on a ROS 2 Jazzy installation
TF_MESSAGE_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"


def installed(name: str) -> Path:
    """A file of the installed interface wheel by the end of its path."""
    files = importlib.metadata.files("engram-interfaces") or []
    return next(Path(file.locate()) for file in files if str(file).endswith(name))


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.name)
def test_every_field_says_what_it_is(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# "), "a definition opens with a sentence"
    fields = [line for line in lines if line and not line.startswith(("#", "---"))]
    bare = [line for line in fields if "#" not in line and line.split()[1] not in OBVIOUS]
    assert not bare


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.name)
def test_the_installed_definition_is_this_one(path: Path) -> None:
    copy = installed(f"share/engram_interfaces/{path.parent.name}/{path.name}")
    assert hashlib.sha256(copy.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()


def test_tf_message_is_the_one_rviz_knows() -> None:
    """Types match on the wire by their hash; a different one would connect to nothing, silently."""
    description = json.loads(installed("share/tf2_msgs/msg/TFMessage.json").read_text())
    hashes = {entry["type_name"]: entry["hash_string"] for entry in description["type_hashes"]}
    assert hashes["tf2_msgs/msg/TFMessage"] == TF_MESSAGE_HASH
