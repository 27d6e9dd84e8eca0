"""The relay by a clock that the test turns, and two real namespaces where this machine allows them."""

import subprocess
import sys

import pytest

from engram.benchmarks.link_relay import Relay
from engram.benchmarks.link_rig import ADDRESSES, LinkRig, why_not

WHY_NOT = why_not()
COUNT, SIZE = 400, 1000
UDP = f"""
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "hear":
    udp.bind(("", 9999))
    udp.settimeout(2.0)
    print("ready", flush=True)
    late = []
    try:
        while True:
            late.append(-float(udp.recv(2000).split()[0]) + time.time())
    except TimeoutError:
        print(len(late), min(late, default=0.0))
else:
    for _ in range({COUNT}):
        udp.sendto(f"{{time.time()}} ".encode().ljust({SIZE}), ("{ADDRESSES["far"]}", 9999))
        time.sleep(0.001)
"""


def test_frames_leave_in_order_after_the_delay_and_a_cut_takes_those_under_way():
    relay = Relay(seed=0, delay_s=0.1)
    relay.arrived(b"first", 1, 10.0)
    relay.arrived(b"second", 0, 10.05)
    assert relay.due(10.09) == []
    assert relay.wait_s(10.09) == pytest.approx(0.01)
    assert relay.due(10.11) == [(1, b"first")]
    relay.cut = True
    assert relay.due(10.2) == []
    relay.arrived(b"third", 1, 10.2)
    assert relay.counts == {"frames": 3, "bytes": 16, "lost": 0, "cut": 1}


def test_losses_come_from_the_seed():
    def lost(seed):
        relay = Relay(seed, loss=0.1)
        before, out = 0, []
        for number in range(2000):
            relay.arrived(b"", 0, float(number))
            out.append(relay.counts["lost"] > before)
            before = relay.counts["lost"]
        return out

    assert lost(3) == lost(3) != lost(4)
    assert 160 <= sum(lost(3)) <= 240  # 200 expected, standard deviation 13


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
@pytest.mark.timeout(60)
def test_two_namespaces_lose_and_delay_what_the_rig_says_and_are_gone_afterwards():
    with LinkRig(seed=1) as rig:
        names = tuple(rig.namespaces.values())
        rig.set(loss=0.2, delay_s=0.05)
        hearing = subprocess.Popen(
            rig.command("far", [sys.executable, "-c", UDP, "hear"]), stdout=subprocess.PIPE, text=True
        )
        assert hearing.stdout.readline() == "ready\n"
        subprocess.run(rig.command("body", [sys.executable, "-c", UDP, "tell"]), check=True)
        heard, latest = hearing.communicate()[0].split()
        counts = rig.counts()
        rig.set(cut=True)
        subprocess.run(rig.command("body", [sys.executable, "-c", UDP, "tell"]), check=True)
        assert rig.counts()["cut"] >= COUNT
    assert int(heard) == pytest.approx(0.8 * COUNT, abs=40)  # standard deviation 8
    assert counts["lost"] >= COUNT - int(heard)
    assert 0.05 <= float(latest) < 0.5
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert not [name for name in names if name in listed]
