"""`make bench`: speeds, each a ratio of two things measured in one run."""
