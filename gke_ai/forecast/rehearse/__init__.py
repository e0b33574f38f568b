"""Rehearses a change on a temporary emulator: applies it with Pulumi, and watches what it does in the queue."""
