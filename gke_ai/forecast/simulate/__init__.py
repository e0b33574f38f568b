"""Replays a day of submissions against the real Kueue on a clock of its own. Runs only on the emulator."""
