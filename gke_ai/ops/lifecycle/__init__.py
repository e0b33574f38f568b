"""Deploys, recovers and deletes stacks."""
