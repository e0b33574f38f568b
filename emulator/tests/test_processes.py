"""What the processes of a cluster inherit from the shell that starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.cluster import processes

CREDENTIALS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "EMULATOR_HF_TOKEN", "GATEWAY_API_KEY", "EMULATOR_GATEWAY_API_KEY"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_CONFIG", "CLOUDSDK_AUTH_ACCESS_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "GITHUB_TOKEN", "SSH_AUTH_SOCK"),
    *("KUBECONFIG", "PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE", "HTTPS_PROXY", "LD_PRELOAD", "PYTHONPATH"),
)


def test_processes_of_a_cluster_inherit_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.setenv(name, "canary")
    assert "canary" not in processes.environment(tmp_path).values()
