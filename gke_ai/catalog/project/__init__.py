"""A project of Google Cloud: APIs, identities, registries, addresses."""
