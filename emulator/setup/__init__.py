"""Sets up the Python environment and builds the tools. Standard library only."""
