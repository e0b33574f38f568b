"""Simulates nodes: GKE's autoscaler, Autopilot, node pools, devices and upgrades."""
