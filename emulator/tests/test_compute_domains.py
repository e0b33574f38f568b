"""The simulated driver for NVLink: the chart in place of NVIDIA's, templates of ComputeDomains, channels of nodes."""

import asyncio
import json
from typing import Any

import httpx
import pytest
import yaml

from emulator.cloud.api import View
from emulator.nodes.compute_domains import ComputeDomains, channels_of, template_of
from emulator.pulumi.kubernetes.helm import chart
from gke_ai.catalog.fabric import nvlink
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR

Object = dict[str, Any]
DOMAIN: Object = {**nvlink.compute_domain("llm"), "metadata": {"name": "nvlink", "namespace": "llm", "uid": "d"}}


def node(uid: str, gpu: str) -> Object:
    return {"metadata": {"name": f"node-{uid}", "uid": uid, "labels": {GKE_ACCELERATOR: gpu}}}


def test_the_pinned_chart_has_the_kind_and_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKE_AI_CHARTS", "/nowhere")
    folder = chart(nvlink.CHART, nvlink.VERSION, nvlink.REPOSITORY).folder
    (crd,) = yaml.safe_load_all((folder / "crds" / "computedomains.yaml").read_text())
    assert crd["spec"]["names"]["kind"] == nvlink.DOMAIN_KIND
    classes = yaml.safe_load_all((folder / "templates" / "classes.yaml").read_text())
    assert [item["metadata"]["name"] for item in classes] == [nvlink.CHANNEL_CLASS, nvlink.DAEMON_CLASS]


def test_a_domain_has_the_template_that_it_names_and_a_node_one_channel_and_one_device_of_the_driver() -> None:
    template = template_of(DOMAIN)
    assert template["metadata"]["name"] == nvlink.DOMAIN
    devices = template["spec"]["spec"]["devices"]
    assert devices["requests"] == [{"name": "channel", "exactly": {"deviceClassName": nvlink.CHANNEL_CLASS}}]
    assert devices["config"][0]["opaque"]["parameters"]["domainID"] == "d"
    published = channels_of(node("n", "nvidia-gb200"))["spec"]
    assert (published["driver"], published["nodeName"]) == (nvlink.DRIVER, "node-n")
    assert [device["name"] for device in published["devices"]] == ["channel-0", "daemon-0"]


def test_each_domain_and_each_node_of_gb200_is_written_once_and_the_template_deleted_with_its_domain() -> None:
    created: list[str] = []
    deleted: list[str] = []

    def api(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            deleted.extend([request.url.path.rpartition("/v1/")[2]] if request.method == "DELETE" else [])
            return httpx.Response(200, json={"items": []})
        item = json.loads(request.content)
        created.append(f"{request.url.path.rpartition('/v1/')[2]}: {item['metadata']['name']}")
        return httpx.Response(201, json=item)

    async def reconcile() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://c") as client:
            domains = ComputeDomains(client, View(client, "/api/v1/nodes", lambda: None))
            for _ in range(2):
                await domains.reconcile([DOMAIN], [node("a", "nvidia-gb200"), node("b", "nvidia-b200")])
            assert deleted == []
            await domains.reconcile([], [])

    asyncio.run(reconcile())
    assert created == [
        "namespaces/llm/resourceclaimtemplates: nvlink",
        "resourceslices: node-a-compute-domain.nvidia.com",
    ]
    assert deleted == ["namespaces/llm/resourceclaimtemplates/nvlink"]
