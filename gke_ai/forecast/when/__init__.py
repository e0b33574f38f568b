"""Asks the real Kueue whether one run more starts, and who is before it: `gke-ai when`."""
