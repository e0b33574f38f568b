"""Waits, retries and connections that components share; no components."""
