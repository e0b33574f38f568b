"""A trial of a system within a budget: deploys it, verifies and measures it, deletes it: `gke-ai trial`."""
