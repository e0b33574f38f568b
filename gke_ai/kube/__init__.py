"""What Kubernetes says: its objects and quantities, read by its own rules."""
