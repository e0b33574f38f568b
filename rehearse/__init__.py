"""Rehearses a change on a scratch emulator: applies it with the real engine, and watches what it does in the queue."""
