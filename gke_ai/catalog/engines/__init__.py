"""Engines that serve models: images, arguments, metrics, gateways, and the memory of models."""
