"""Emulates the `kubernetes` plugin of Pulumi, for machines that can't get the official one.

All kinds share one path: the plugin creates objects, applies them (server-side, with strict validation), waits for them
and deletes them by the official plugin's rules, at a real Kubernetes API server. The real helm handles Helm releases.
The plugin may be stricter than the official one, but never more lenient: it refuses what it doesn't know, by name.
"""
