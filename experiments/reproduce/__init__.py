"""Figure 2 of Wang and Blunsom (2015), repeated by ``sojourn reproduce``."""
