"""What Google Cloud and Kubernetes offer, as plain data and pure functions. Nothing here imports Pulumi.

Each figure stands once, with the page that it comes from. Unless a comment says so, no figure was measured on Google
Cloud: check a figure against its page before money depends on it.
"""
