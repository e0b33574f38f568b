"""The secrets of a stack: keys of its configuration that are no part of its settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StackSecret:
    """A key with an encrypted value, and the environment variable that can have the value instead."""

    key: str
    variable: str
    description: str


HF_TOKEN = StackSecret(
    "hfToken", "HF_TOKEN", "Hugging Face token, with which servers and runs download models and datasets."
)
API_KEY = StackSecret(
    "gatewayApiKey", "GATEWAY_API_KEY", "API key of the gateway's clients. It is used only with `gateway.apiKey`."
)
SECRETS = (HF_TOKEN, API_KEY)


def is_secret(value: object) -> bool:
    """Whether `pulumi config set --secret` wrote this configuration value."""
    return isinstance(value, dict) and value.keys() == {"secure"}
