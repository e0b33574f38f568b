"""`python -m rehearse.when`: asks the real Kueue about one run more: whether it starts, and who is before it."""
