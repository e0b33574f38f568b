"""Rules of the API key that the gateway's servers require from clients."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.settings.model import Gateway, Server
from gke_ai.settings.problems import Problem
from gke_ai.settings.rules.common import each_server

PATH = "gke-ai:gatewayApiKey"
# Long enough that nobody guesses it: https://cheatsheetseries.owasp.org/cheatsheets/Authentication_Cheat_Sheet.html
MIN_LENGTH = 16
_SET = f"Run openssl rand -hex 32 | pulumi config set --secret {PATH}"


def api_key_problems(stated: str | None, encrypted: bool, environment: str | None) -> Iterator[Problem]:
    """Problems of the key itself; no message quotes it.

    Args:
        stated: `gke-ai:gatewayApiKey` of the stack, None if it is missing.
        encrypted: Whether Pulumi keeps that key as a secret.
        environment: The variable GATEWAY_API_KEY; used only if the key is missing.
    """
    if stated and not encrypted:
        cause = "the configuration contains the API key in plain text. Everyone who can read that file can use it"
        yield Problem(PATH, cause, f"Choose another one. {_SET}")
    key, source = (environment, "the variable GATEWAY_API_KEY") if stated is None else (stated, "the API key")
    if key is None:
        return
    if re.search(r"\s", key.strip()):
        yield Problem(PATH, f"{source} contains a space or a line break. Clients could not send it in a header", _SET)
    elif len(key.strip()) < MIN_LENGTH:
        cause = f"{source} has fewer than {MIN_LENGTH} characters. Others could guess it"
        yield Problem(PATH, cause, _SET)


def missing_api_key(gateway: Gateway | None, stated: bool, given: bool) -> Iterator[Problem]:
    """Reports an API key that the gateway requires and that is not set, or one that nothing requires."""
    required = gateway is not None and gateway.api_key
    if required and not given:
        cause = "no API key is set, and the gateway requires one"
        yield Problem(PATH, cause, f"{_SET}, or set the variable GATEWAY_API_KEY")
    elif stated and not required:
        cause = "an API key is set, and no gateway requires it. Everyone who reaches the servers could use them"
        yield Problem(PATH, cause, f"Set gateway.apiKey: true, or run pulumi config rm {PATH}")


@each_server
def keys_are_secrets(server: Server) -> Iterator[Problem]:
    """No server has an API key in plain text among its arguments or variables."""
    variable = ENGINES[server.engine].api_key_variable
    where = "arguments" if "api-key" in server.reading.values else "env" if variable in server.env else ""
    if variable and where:
        cause = "this is an API key in plain text. Everyone who can read this file or the cluster could use it"
        yield Problem(server.at(where), cause, "Remove it, choose another one, and set gateway.apiKey: true")
