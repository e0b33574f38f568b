"""Shows what runs, what waits and why."""
