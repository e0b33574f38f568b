"""Tests of the tools of maintainers."""
