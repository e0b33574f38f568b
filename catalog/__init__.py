"""What Google Cloud and Kubernetes offer, as plain data and pure functions; nothing here imports Pulumi.

Each figure stands once, with the page it comes from. Nothing in this package was measured on Google Cloud unless it
says so: check a figure against its page before money depends on it.
"""
