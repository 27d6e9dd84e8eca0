"""Packages of Debian and Ubuntu that the Python packages need beside them."""

LIBRARIES = "libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri libusb-1.0-0 libgomp1"
"""What MuJoCo's rendering (EGL) and Open3D load. ``.ci/setup`` installs the same, and the documentation names it."""
