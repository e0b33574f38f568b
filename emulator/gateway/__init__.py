"""Simulates GKE's Gateway controller: an Envoy per Gateway, and the status of the Gateway API's objects."""
