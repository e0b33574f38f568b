"""Asks the real Kueue whether one run more starts, and who is before it: `python -m gke_ai.forecast.when`."""
