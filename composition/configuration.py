"""Reads the stack's configuration and token, and refuses them with every mistake at once."""

from __future__ import annotations

import json
import os

import pulumi

import settings
from settings import BadConfiguration, Problem, Settings, cold_start, model_memory, warnings


def load() -> tuple[Settings, str, pulumi.Output[str] | None]:
    """The settings, the project and the token of the stack. Raises RunError with everything that is wrong."""
    google = pulumi.Config("gcp")
    project = google.get("project") or ""
    token = hugging_face_token()
    try:
        stack = settings.load(
            configuration(),
            project,
            token_given=token is not None,
            region=google.get("region") or "",
            token_problems=token_problems(),
        )
    except BadConfiguration as bad:
        raise pulumi.RunError(str(bad)) from None
    for warning in [*map(str, model_memory.unchecked(stack)), *warnings.legacy_engines(stack)]:
        pulumi.log.warn(warning)
    for estimate in cold_start.estimates(stack):
        pulumi.log.info(str(estimate))
    return stack, project, token


def configuration() -> dict[str, object]:
    """All keys of this program in the stack's configuration, without prefix. Includes misspelled keys."""
    prefix = f"{pulumi.get_project()}:"
    config = pulumi.runtime.get_config_env()
    return {key.removeprefix(prefix): parsed(text) for key, text in config.items() if key.startswith(prefix)}


def parsed(text: str) -> object:
    """A value of the configuration. Pulumi passes objects and lists as JSON, and strings unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def hugging_face_token() -> pulumi.Output[str] | None:
    """The token as a secret: `gke-ai:hfToken` of the stack, or else the variable HF_TOKEN."""
    if configured := pulumi.Config().get_secret("hfToken"):
        return configured
    variable = os.environ.get("HF_TOKEN", "").strip()
    return pulumi.Output.secret(variable) if variable else None


def token_problems() -> list[Problem]:
    """What is wrong with the token, or with the place where it is set."""
    key = f"{pulumi.get_project()}:hfToken"
    encrypted = pulumi.runtime.is_config_secret(key)
    return list(settings.token_problems(pulumi.Config().get("hfToken"), encrypted, os.environ.get("HF_TOKEN")))
