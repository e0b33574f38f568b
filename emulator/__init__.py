"""Emulates Google Cloud: runs the same program that Google Cloud runs, on a machine with no cloud account."""
