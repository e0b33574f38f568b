"""Tests that deploy to the emulator: real engine, Kubernetes, Kueue, JobSet and autoscaler."""
