"""Sends requests to servers, as their users do."""
