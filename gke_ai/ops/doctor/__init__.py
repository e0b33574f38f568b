"""Checks what is missing before a first `up` on Google Cloud."""
