"""Tests of what the program registers, recorded as plain data."""
