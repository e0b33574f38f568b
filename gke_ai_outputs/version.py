"""Version of the contract of a stack's outputs. What the program writes is in gke_ai/catalog/versions.py."""

VERSION = "1.4"
