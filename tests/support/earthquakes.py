"""Major earthquakes per year, 1900 to 2006: three Poisson states, -log L 328.5275."""

from sojourn.demo import EARTHQUAKES as COUNTS

EARTHQUAKES = COUNTS.astype(float)
