"""Compares the claims that a stack relies on with its live cluster, and measures the cluster."""
