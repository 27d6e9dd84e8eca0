"""Large vision-language-action policies of LeRobot's, with our memory of the episode beside them."""
