"""The identifier among the outputs changes when the cluster is created again, and at no other time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recorder import Cloud, configuration, run_program

UID = "gke-94fc1769e0c844e99793ee485d88c68c0b39.us-central1.gke.goog"
CREATED = "examples/mixed-training-inference-autopilot.yaml"
EXISTING = {"name": "theirs", "mode": "existing", "existingMode": "autopilot"}


def identifier(monkeypatch: pytest.MonkeyPatch, returned: dict[str, Any], **sections: Any) -> Any:
    """The output of a stack whose cluster the cloud returns with these properties."""
    config = configuration(CREATED) | {f"gke-ai:{name}": section for name, section in sections.items()}
    monkeypatch.setattr(Cloud, "kept", returned)
    return run_program(config, False, monkeypatch).outputs["clusterIdentifier"]


def named(name: str, allowed: bool = False) -> dict[str, Any]:
    return {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": name, "allowExternalTraffic": allowed}}}


def test_another_cluster_of_the_same_name_has_another_identifier(monkeypatch: pytest.MonkeyPatch) -> None:
    assert identifier(monkeypatch, named(UID)) != identifier(monkeypatch, named(UID.replace("94fc", "0000")))


def test_neither_rotated_credentials_nor_access_by_dns_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rotated = {"endpoint": "192.0.2.9", "masterAuth": {"clusterCaCertificate": "Rg=="}, "masterVersion": "1.99.0"}
    assert identifier(monkeypatch, named(UID)) == identifier(monkeypatch, named(UID, allowed=True) | rotated) == UID


def test_an_existing_cluster_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, "by_name", {"endpoint": UID, "allowExternalTraffic": False})
    assert identifier(monkeypatch, {}, cluster=EXISTING) == UID


@pytest.mark.parametrize("returned", [{}, {"controlPlaneEndpointsConfig": {}}, named("")])
def test_a_cluster_without_a_name_in_dns_is_known_by_its_own(
    returned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert identifier(monkeypatch, returned) == "us-central1/llm-cluster"
