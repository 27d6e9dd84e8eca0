"""Types, contracts, configuration, geometry, control and safety: no ROS, no torch, no simulator."""
