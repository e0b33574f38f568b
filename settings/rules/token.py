"""Rules of the token that models are downloaded with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from settings.model import Settings
from settings.problems import TOKEN, Problem
from settings.rules.common import Rule

# https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets
_SECRET = re.compile(r"(projects/[a-z0-9][-a-z0-9.:]*/secrets/)?[A-Za-z0-9_-]{1,255}")


def token_secret_is_a_name(settings: Settings) -> Iterator[Problem]:
    """The secret is named by its id or in full, without a version, and is not the token itself."""
    named, path = settings.hf_token_secret, "gke-ai:hfTokenSecret"
    if named is None:
        return
    if TOKEN.search(named):
        cause = "this is a token, and everyone who can read the configuration has it"
        yield Problem(path, cause, "Revoke it, put another into Secret Manager, and write the id of that secret here")
    elif "/versions/" in named:
        cause = f"{named} names a version — the latest is what GKE brings in, so that a new token arrives by itself"
        yield Problem(path, cause, f"Write {named.partition('/versions/')[0]}")
    elif _SECRET.fullmatch(named) is None:
        cause = f"{named!r} is no name of a secret — Secret Manager would not find it"
        yield Problem(path, cause, "Write its id (letters, digits, '-' and '_'), or projects/PROJECT/secrets/ID")


RULES: tuple[Rule, ...] = (token_secret_is_a_name,)
