"""`python -m gke_ai.forecast.snapshot`: writes the state of a cluster as JSON, with listed fields only."""
