"""Rehearses a change on a scratch emulator, and says what the change does in the queue.

This folder decides nothing about Kubernetes: the emulator does. It records what happens and reads it. It imports only
the catalog, so that `ops` and `report` can read forecasts.
"""
