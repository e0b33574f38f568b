"""Estimates of the memory and the start of model servers."""
