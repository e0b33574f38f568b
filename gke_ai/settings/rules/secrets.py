"""Rules of the stack's secrets: the Hugging Face token, and the API key of the gateway's clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gke_ai.settings.model import Gateway
from gke_ai.settings.problems import TOKEN, Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import rule
from gke_ai.settings.secrets import is_secret

_SET_TOKEN = "Copy only the token, and run pulumi config set --secret gke-ai:hfToken"
# https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets
_SECRET = re.compile(r"(projects/[a-z0-9][-a-z0-9.:]*/secrets/)?[A-Za-z0-9_-]{1,255}")
PATH = "gke-ai:gatewayApiKey"
# Long enough that nobody guesses it: https://cheatsheetseries.owasp.org/cheatsheets/Authentication_Cheat_Sheet.html
MIN_LENGTH = 16
_SET = f"Run openssl rand -hex 32 | pulumi config set --secret {PATH}"


def token_problems(stated: str | None, encrypted: bool, environment: str | None) -> Iterator[Problem]:
    """Problems of the token itself; no message quotes it.

    Args:
        stated: `gke-ai:hfToken` of the stack, None if the key is missing.
        encrypted: Whether Pulumi keeps that key as a secret.
        environment: The variable HF_TOKEN; used only if the key is missing.
    """
    path = "gke-ai:hfToken"
    if stated and not encrypted:
        cause = "the configuration contains the token in plain text. Everyone who can read that file has it"
        yield Problem(path, cause, f"Revoke it, create another, and run pulumi config set --secret {path}")
    token, source = (environment, "the variable HF_TOKEN") if stated is None else (stated, "the token")
    if stated is not None and not stated.strip():
        yield Problem(path, "the token is empty. Pods could not download models", _SET_TOKEN)
    elif re.search(r"\s", (token or "").strip()):
        cause = f"{source} contains a space or a line break, and a token has none. Hugging Face would refuse downloads"
        yield Problem(path, cause, _SET_TOKEN)


def encrypted_values(value: object, path: str) -> Iterator[str]:
    """Paths of the values that `pulumi config set --secret --path` wrote, in a configuration as its file has it."""
    if is_secret(value):
        yield path
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from encrypted_values(inside, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inside in enumerate(value):
            yield from encrypted_values(inside, f"{path}[{index}]")


def encrypted_problem(path: str) -> Problem:
    """The problem of an encrypted value that is no secret of the stack, or of a key with such a value."""
    cause = "this has an encrypted value (`secure:`), and the program would write it in plain text into its state and "
    cause += "into objects of the cluster"
    remedy = "Put the value into a Kubernetes Secret that the pods read. If it is no secret, set it without --secret; "
    return Problem(path, cause, f"{remedy}to remove it, run pulumi config rm --path '{path}'")


@rule
def token_secret_is_a_name(stack: ResolvedStack) -> Iterator[Problem]:
    """hfTokenSecret is the id or full name of a secret, without a version, and not the token itself."""
    named, path = stack.settings.hf_token_secret, "gke-ai:hfTokenSecret"
    if named is None:
        return
    if TOKEN.search(named):
        cause = "this is a token, not the name of a secret. Everyone who can read the configuration has it"
        yield Problem(path, cause, "Revoke it, store another in Secret Manager, and write the id of that secret here")
    elif "/versions/" in named:
        cause = f"{named} names a version. GKE always uses the latest version, so that a new token takes effect"
        yield Problem(path, cause, f"Write {named.partition('/versions/')[0]}")
    elif _SECRET.fullmatch(named) is None:
        cause = f"{named!r} is not the name of a secret. Secret Manager would not find it"
        yield Problem(path, cause, "Write its id (letters, digits, '-' and '_'), or projects/PROJECT/secrets/ID")


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
