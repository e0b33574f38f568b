"""Values that the `environment` of a configuration file adds to its keys, as `pulumi up` sees them.

Only the Pulumi CLI opens environments, and it prints no secret here. It is asked outside the emulator, which has no
login, and only for a file of the project in which the command runs: an environment is opened with the user's rights,
and a stranger's file could send what it holds to the stranger.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import Reader, read_file
from gke_ai.catalog.section_files import LIMIT, PREFIX
from gke_ai.settings.secrets import SECRETS, is_secret
from gke_ai.terminal import Stop
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import ENVIRONMENTS_OF, ROOT

# A secret of an environment, in the form of one that Pulumi encrypted. It counts as given.
MASKED = {"secure": "a-secret-of-the-environment"}
# One variable for each environment, also for the command that runs again on the emulator: it has no secret.
_OPENED = "GKE_AI_OPENED_"
# A value of ours. Without it, Pulumi did not open the environment: `pulumi config --json` says nothing of that.
# `OpenYAMLEnvironment` in https://github.com/pulumi/pulumi/blob/v3.250.0/pkg/backend/httpstate/environments.go
_MARK = "opened:opened"
_SECRETS_PROVIDER = ("secretsprovider", "encryptedkey", "encryptionsalt")
_COMMAND = ("pulumi", "config", "--json", "--open", "--non-interactive")


def with_environment(path: Path, content: Mapping[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """Returns the keys of a configuration file over the values of its environment. Stops if it cannot be opened."""
    if not (environment := content.get("environment")):
        return keys
    digest = hashlib.sha256(json.dumps(environment, sort_keys=True, default=str).encode()).hexdigest()
    if (variable := f"{_OPENED}{digest[:32]}") not in os.environ:
        values = json.dumps(_values(path, _open(path, content)))
        if len(values) > LIMIT - len(variable) - 2:
            raise _stop(
                path, f"its values exceed {LIMIT:,} bytes, which Pulumi cannot pass to the program", "Shorten it"
            )
        os.environ[variable] = values
    merged: dict[str, Any] = _over(keys, json.loads(os.environ[variable]))
    return merged


def without_masked(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keys without the secrets that only the environment has."""
    return {key: value for key, value in keys.items() if value != MASKED}


def _over(stated: Any, below: Any) -> Any:
    """Mappings are merged, and all else is as stated.

    `object.Merge` in https://github.com/pulumi/pulumi/blob/v3.250.0/sdk/go/common/resource/config/object.go
    """
    if not isinstance(stated, dict) or not isinstance(below, dict) or is_secret(stated) or is_secret(below):
        return stated
    return {**below, **{key: _over(item, below[key]) if key in below else item for key, item in stated.items()}}


def _open(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `pulumi config --json` says of an environment alone."""
    stack = os.environ.get(ENVIRONMENTS_OF) or path.stem.removeprefix("Pulumi.")
    if on_emulator():
        remedy = "Run gke-ai with --emulator, not through make or emulator/run, and name this file"
        raise _stop(path, "the emulator has no login to Pulumi Cloud, so the values are unknown", remedy)
    if not path.resolve().is_relative_to(ROOT.resolve()):
        remedy = "If you trust it, copy it there, or write the values into it"
        raise _stop(path, f"the file is not in {ROOT}, and your login would open the environment for it", remedy)
    environment, is_marked = _marked(content["environment"])
    project = read_file(ROOT / "Pulumi.yaml", Reader.PULUMI)[0]
    kept = {key: project[key] for key in ("name", "backend") if key in project}
    with tempfile.TemporaryDirectory() as folder:  # Pulumi may write a salt into the file
        Path(folder, "Pulumi.yaml").write_text(json.dumps({**kept, "runtime": "python"}))
        file = Path(folder, "Pulumi.environment.yaml")
        head = {key: content[key] for key in _SECRETS_PROVIDER if key in content}
        file.write_text(json.dumps({**head, "environment": environment}, default=str))
        command = [*_COMMAND, "--stack", stack, "--config-file", str(file)]
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True
            )
            answer: dict[str, Any] = json.loads(done.stdout)
        except subprocess.CalledProcessError as failed:
            cause = f"Pulumi does not open it: {' '.join(failed.stderr.split())[:300].rstrip('.')}"
            remedy = f"Log in to Pulumi Cloud, as no other backend has environments. Create the stack {stack}"
            raise _stop(path, cause, f"{remedy}:  pulumi stack init {stack}") from None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = "is not on PATH" if isinstance(error, FileNotFoundError) else "gives no valid answer"
            raise _stop(path, f"pulumi {reason}, so the values are unknown", "Try: pulumi config --open") from None
    if answer.pop(_MARK, None) is None and (is_marked or not answer):
        cause = "Pulumi did not open it, because it has errors, and `pulumi up` would stop"
        raise _stop(path, cause, f"Read them: pulumi preview --stack {stack}")
    return answer


def _marked(environment: Any) -> tuple[Any, bool]:
    """An environment with a value of ours, and whether it could be added."""
    whole = {"imports": environment} if isinstance(environment, list) else environment
    values = whole.get("values") or {} if isinstance(whole, dict) else None
    config = values.get("pulumiConfig") or {} if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(config, dict):
        return environment, False
    return {**whole, "values": {**values, "pulumiConfig": {**config, _MARK: "true"}}}, True


def _values(path: Path, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The values by key. Pulumi leaves out what is secret, and a section with a secret inside."""
    known = {f"{PREFIX}{secret.key}" for secret in SECRETS}
    for key, entry in answer.items():
        if entry["secret"] and key.startswith((PREFIX, "gcp:project", "gcp:region")) and key not in known:
            raise _stop(path, f"{key} is secret there, so only `pulumi up` can read it", "Store it in plain text")
    return {key: MASKED if entry["secret"] else _value(entry) for key, entry in answer.items()}


def _value(entry: Mapping[str, Any]) -> Any:
    """An object or list, or what a text has if it is JSON, as the program reads it."""
    if "objectValue" in entry:
        return entry["objectValue"]
    try:
        return json.loads(entry["value"])
    except ValueError:
        return entry["value"]


def _stop(path: Path, cause: str, remedy: str) -> Stop:
    return Stop(f"{path.name}: environment: {cause}. {remedy}.")
