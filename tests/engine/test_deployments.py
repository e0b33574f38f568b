"""Only here: Pulumi's CLI reads the settings of Pulumi Deployments and sends every key to a stub of its cloud."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.tests.harness import RUN
from tests.support.local_server import listening
from tests.support.repository import ROOT

FOLDER = ROOT / "examples" / "deployments"
STACK = {"orgName": "my-organization", "projectName": "gke-ai", "activeUpdate": "", "tags": {}, "version": 1}


def sent(folder: Path, stack: str) -> dict[str, Any]:
    """What the CLI sends."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers: Mapping[str, Any] = {
                "/api/user": {"githubLogin": "my-organization", "organizations": []},
                f"/api/stacks/my-organization/gke-ai/{stack}": {**STACK, "stackName": stack},
            }
            if self.path.endswith("/deployments/settings") and content:
                bodies.append(json.loads(content))
            text = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = _serve

        def log_message(self, *_: object) -> None:
            """Nothing."""

    (folder / "Pulumi.yaml").write_text("name: gke-ai\nruntime: python\n")
    shutil.copy(FOLDER / f"Pulumi.{stack}.deploy.yaml", folder)
    with listening(Handler) as address:
        login = ["env", f"PULUMI_BACKEND_URL=http://{address}", "PULUMI_ACCESS_TOKEN=pul-test"]
        push = ["pulumi", "deployment", "settings", "push", "--yes", "--stack", f"my-organization/gke-ai/{stack}"]
        environment = os.environ | {"GKE_AI_STATE": str(folder / "state")}
        done = subprocess.run([RUN, *login, *push], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (body,) = bodies
    return body


def known(stated: Any, received: Any) -> Any:
    """What was received of the stated keys."""
    if not isinstance(stated, dict):
        return received
    return {key: known(value, received[key]) for key, value in stated.items() if key in received}


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_every_key_of_the_settings_is_sent(stack: str, tmp_path: Path) -> None:
    stated = yaml.safe_load((FOLDER / f"Pulumi.{stack}.deploy.yaml").read_text())["settings"]
    assert known(stated, sent(tmp_path, stack)) == stated
