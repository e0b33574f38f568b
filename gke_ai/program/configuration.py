"""Reads the stack's configuration and token, and refuses them with every mistake at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pulumi

from gke_ai import settings
from gke_ai.catalog.section_files import FOLDER
from gke_ai.settings import BadConfiguration, Problem, ResolvedStack
from gke_ai.settings.estimates import cold_start, model_memory, tight_models
from gke_ai.settings.rules import warnings
from gke_ai.settings.secrets import API_KEY, HF_TOKEN, StackSecret


@dataclass(frozen=True)
class Secrets:
    """Secrets of the stack, which are no part of its settings."""

    token: pulumi.Output[str] | None
    """Hugging Face token."""
    api_key: pulumi.Output[str] | None
    """API key that the servers behind the gateway require."""


def load() -> tuple[ResolvedStack, str, Secrets]:
    """The resolved stack, the project and the secrets of the stack. Raises RunError with everything that is wrong."""
    google = pulumi.Config("gcp")
    project = google.get("project") or ""
    secrets = Secrets(value_of(HF_TOKEN), value_of(API_KEY))
    try:
        configured = configuration()
        stack = settings.load(
            configured,
            project,
            token_given=secrets.token is not None,
            api_key_given=secrets.api_key is not None,
            region=google.get("region") or "",
            folder=Path(os.environ.get(FOLDER, "")),
            encrypted=[key for key in configured if pulumi.runtime.is_config_secret(f"{pulumi.get_project()}:{key}")],
            token_problems=[
                *problems(settings.token_problems, HF_TOKEN),
                *problems(settings.api_key_problems, API_KEY),
            ],
        )
    except BadConfiguration as bad:
        raise pulumi.RunError(str(bad)) from None
    found = [
        *warnings.legacy_engines(stack.settings.serving),
        *warnings.uncertain_arguments(stack.settings.serving),
        *warnings.long_grace_periods(stack.placed),
        *warnings.compact_spot_pools(stack.pools),
        *warnings.images_without_streaming(stack.servers),
        *warnings.ending_capacity(stack.pools, stack.placed, datetime.now(UTC)),
    ]
    memory = [*model_memory.unchecked(stack.servers), *tight_models.tight(stack.servers)]
    for warning in [*map(str, memory), *found]:
        pulumi.log.warn(warning)
    waking = cold_start.wakings(stack.scaled, stack.placed)
    for estimate in [*cold_start.estimates(stack.servers, stack.measured), *waking]:
        pulumi.log.info(str(estimate))
    if stack.settings.policies == "mandatory" and pulumi.runtime.is_dry_run():
        pulumi.log.info("gke-ai:policies is mandatory. Pulumi runs the policies only with `--policy-pack policy`.")
    return stack, project, secrets


def configuration() -> dict[str, object]:
    """All keys of this program in the stack's configuration, without prefix. Includes misspelled keys."""
    prefix = f"{pulumi.get_project()}:"
    config = pulumi.runtime.get_config_env()
    return {key.removeprefix(prefix): parsed(text) for key, text in config.items() if key.startswith(prefix)}


def parsed(text: str) -> object:
    """A value of the configuration. Pulumi passes objects and lists as JSON, and strings unchanged."""
    try:
        # A number of thousands of digits is infinite, so that its key is named. Python's `int` refuses it.
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 1000 else float(digits))
    except ValueError:
        return text


def value_of(secret: StackSecret) -> pulumi.Output[str] | None:
    """The value of a secret: of its key, or else of its environment variable."""
    if configured := pulumi.Config().get_secret(secret.key):
        return configured
    value = os.environ.get(secret.variable, "").strip()
    return pulumi.Output.secret(value) if value else None


def problems(check: Callable[..., Iterable[Problem]], secret: StackSecret) -> list[Problem]:
    """What is wrong with a secret, or with the place where it is set."""
    encrypted = pulumi.runtime.is_config_secret(f"{pulumi.get_project()}:{secret.key}")
    return list(check(pulumi.Config().get(secret.key), encrypted, os.environ.get(secret.variable)))
