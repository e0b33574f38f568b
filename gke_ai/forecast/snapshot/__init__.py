"""Reads the state of a cluster, and writes it as JSON with listed fields only."""
