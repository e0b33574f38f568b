"""`make bench`: measures speed, mostly as ratios of two actions in the same run."""
