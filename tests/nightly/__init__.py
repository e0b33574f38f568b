"""Tests that repeat, compare versions, kill or soak: `make test-nightly`."""
