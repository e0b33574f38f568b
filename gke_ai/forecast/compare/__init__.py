"""Compares a forecast with what happened after the merge."""
