"""Pictures for the documentation, drawn by code: `make pictures` writes them, and a test says when one is stale."""
