"""Pictures for the documentation, drawn by code.

`make pictures` writes them, and a test fails if one is stale.
"""
