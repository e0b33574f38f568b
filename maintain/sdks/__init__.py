"""Writes SDKs of the package `gke-ai` for Node, Go and Python, with an example of each component in every language."""
