"""The page's node as a process."""

import os
import socket

import pytest

from tests.ros.processes import NodeProcess

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]


def test_a_port_in_use_is_an_error_that_names_its_owner_and_the_end():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = NodeProcess("viewer_node", {"port": port}, int(os.environ["ROS_DOMAIN_ID"]))
        assert process.child.wait(240) == 1
    assert f"configure failed: port {port} is in use by" in process.output()
    assert f"(pid {os.getpid()}); choose another with port:=N" in process.output()
    assert "Traceback" not in process.output()
