"""AI systems on GKE: what is imported, one folder a subject, and the components as `gke_ai.components`."""
