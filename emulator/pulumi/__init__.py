"""Pulumi's side: the language host for Python, and what the resource plugins share."""
