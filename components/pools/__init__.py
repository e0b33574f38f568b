"""Node pools and compute classes."""
