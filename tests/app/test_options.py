"""Options that would change nothing are refused."""

import pytest

from engram.app.options import chosen
from engram.app.teleop import TeleopConfig
from engram.core.errors import InvalidInputError


@pytest.mark.parametrize("device", ["keyboard", "gamepad"])
def test_a_device_without_motors_takes_none_of_their_settings(device):
    with pytest.raises(InvalidInputError, match=rf"TeleopConfig\.unit: rad: would change nothing: a {device} has no"):
        TeleopConfig(device, unit="rad")
    assert chosen(TeleopConfig('{"type": "so101_leader"}', unit="rad"), ("unit", "align_rad")) == ["unit"]
