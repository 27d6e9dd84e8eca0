"""Our success classifier as a reward model of LeRobot's: type ``engram_success``.

LeRobot's factory finds configuration, model and processors by the names of these modules and of what is in them.
Importing ``engram.lerobot`` registers the type.
"""
