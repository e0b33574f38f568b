"""Nodes in Kubernetes: what their machines leave for pods, how they start and are upgraded, and their quotas."""
