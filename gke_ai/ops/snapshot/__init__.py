"""`python -m gke_ai.ops.snapshot`: writes the state of a cluster as JSON, with listed fields only."""
