"""A load through the gateway, and what became of its requests."""
