"""Programs that pods of the stack run. Standard library only: they run in a plain Python image."""
