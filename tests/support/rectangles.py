"""Four groups that two clusters can have in two ways, of which one is better, and no single move leads to it."""

import numpy as np

# Four groups at the corners of a rectangle. Two clusters have its short sides, or its long ones, which fit less.
CORNERS = np.array([[0.0, 0.0], [0.0, 16.0], [20.0, 0.0], [20.0, 16.0]])
SHORT_SIDES, LONG_SIDES = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
