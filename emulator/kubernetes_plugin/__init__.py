"""Emulates the `kubernetes` plugin of Pulumi, for machines that can't get the official one.

One generic path for every kind: objects are created, applied (server-side, strictly validated), awaited and deleted at
a real Kubernetes API server by the official plugin's rules, Helm releases by the real helm. It may be stricter than the
official plugin, never more lenient: what it doesn't know, it refuses by name.
"""
