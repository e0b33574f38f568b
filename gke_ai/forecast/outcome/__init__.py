"""Reads a timeline of observations: what a change does in the queue, to servers and to nodes. Pure."""
