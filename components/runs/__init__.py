"""Training runs and batch Jobs."""
