"""Measures where the time of a test run goes: seconds, CPU time by program, clusters and engine runs, per test file."""
