"""Kueue's configuration and releases, and the controllers of further kinds of runs."""
