"""Compares the blueprints of Cluster Toolkit with the examples of the same machines."""
