"""What holds for every test: offline, one thread, software rendering, and a ROS graph of one's own."""

import os

_DEFAULTS = {
    "MUJOCO_GL": "egl",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "ROS_PYTHON_CHECK_FIELDS": "1",
    "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    # 1..100: above 101 DDS ports run into Linux's ephemeral range. Two test runs side by side do not meet.
    "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
}
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)
