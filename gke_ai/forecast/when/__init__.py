"""`python -m gke_ai.forecast.when`: asks the real Kueue whether one run more starts, and who is before it."""
