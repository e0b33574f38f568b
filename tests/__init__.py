"""Tests of the product, by what they need."""
