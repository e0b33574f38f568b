"""The emulated Google Cloud's state: its resources, the records of its clusters, and access to their API servers."""
