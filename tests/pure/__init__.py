"""Tests of functions: no program of Pulumi, no other process that matters."""
