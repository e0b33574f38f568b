"""Manifests of what a stack has in its cluster, for Argo CD, Flux, Config Sync or kubectl: `gke-ai render`."""
