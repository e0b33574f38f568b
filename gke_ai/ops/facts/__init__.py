"""Asks Google and Hugging Face for figures that a configuration needs."""
