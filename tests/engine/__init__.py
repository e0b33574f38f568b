"""Tests with the real Pulumi engine, Helm and other tools, without a cluster."""
