"""Kueue with its queues, and the namespaces and tenants that use them."""
