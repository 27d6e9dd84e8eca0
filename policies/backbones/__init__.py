"""LeRobot's large vision-language-action policies, frozen, with a trainable sequence memory."""
