"""The guides to a new engine and a new key are complete: their own blocks, applied to a copy, are enough."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT, copy_to

PLACE = re.compile(r"^## [^\n]*?(?P<path>[\w/]+\.(?:py|yaml))\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S)
BLOCK = re.compile(r"^```(?P<language>diff|python)\n(?P<content>.*?)^```$", re.M | re.S)

# Runs in the copy: deploys a configuration to Pulumi's mocks and prints what the tests check.
PROBE = """
import asyncio, json, runpy, sys
import pytest
from gke_ai.catalog.engines.engine import ENGINES
from maintain.pages import settings_page
from emulator.pods.programs import known
from gke_ai.settings import BadConfiguration, load
from gke_ai.settings.schema import schema
from tests.support.recorder import PROJECT, run_program

asyncio.set_event_loop(asyncio.new_event_loop())
good, mistakes = json.load(sys.stdin)
try:
    load(mistakes, PROJECT)
    refusal = ""
except BadConfiguration as bad:
    refusal = str(bad)
with pytest.MonkeyPatch.context() as monkeypatch:
    record = run_program({f"gke-ai:{key}": value for key, value in good.items()}, False, monkeypatch)
package = runpy.run_path("components/plugin/__main__.py")
served = json.loads(package["Package"](package["every_component"]()).schema)
deployments = {deployment.object_name: deployment.inputs for deployment in record.all("Deployment")}
engine = ENGINES["sglang"]
print("RESULT" + json.dumps({
    "containers": {name: inputs["spec"]["template"]["spec"]["containers"][0] for name, inputs in deployments.items()},
    "ports": record.one("Service", "sglang").inputs["spec"]["ports"],
    "generated": [json.dumps(schema()), "".join(page() for page in settings_page.pages().values()), json.dumps(served)],
    "inputs": list(served["resources"]["gke-ai:index:SglangServer"]["inputProperties"]),
    "pool": dict(record.one("NodePool", "prepare").inputs),
    "refusal": refusal,
    "stub": known(engine.image) is not None,
    "request": engine.body("m", "Hello", 7),
}))
"""
SERVERS: list[dict[str, Any]] = [
    {
        "name": "sglang",
        "engine": "sglang",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "accelerator": "nvidia-l4",
        "gpus": 2,
        "maxModelLen": 8192,
        "maxRunningRequests": 64,
    },
    {"name": "vllm", "engine": "vllm", "model": "google/gemma-2-2b", "accelerator": "nvidia-l4", "maxLogprobs": 8},
    {
        "name": "tgi",
        "engine": "tgi",
        "model": "google/gemma-2-2b",
        "accelerator": "nvidia-l4",
        "maxConcurrentRequests": 128,
    },
]
POOL = {"name": "prepare", "machineType": "e2-standard-4", "autoscaling": {"maxNodes": 4}, "capacity": {"mode": "spot"}}
CLUSTER = {"mode": "standard", "location": "us-central1"}
GUIDES = ("adding-an-engine.md", "adding-a-key.md", "adding-a-pool-kind.md")
# A misspelled key, an argument and a variable that keys set.
MISTAKES: list[dict[str, Any]] = [
    {"maxRunningRequest": 64},
    {"arguments": ["--max-logprobs=4"]},
    {"env": {"MAX_CONCURRENT_REQUESTS": "4"}},
]


@dataclass(frozen=True)
class Added:
    """What the guides add: the files that each touches, and what the repository then makes of `SERVERS`."""

    files: dict[str, set[str]]
    result: dict[str, Any]


# Runs in a copy: deploys a configuration to Pulumi's mocks and prints the resources of one kind.
DEPLOY = """
import asyncio, json, sys
import pytest
from tests.support.recorder import run_program

asyncio.set_event_loop(asyncio.new_event_loop())
kind, config = json.load(sys.stdin)
with pytest.MonkeyPatch.context() as monkeypatch:
    record = run_program({f"gke-ai:{key}": value for key, value in config.items()}, False, monkeypatch)
print("RESULT" + json.dumps({resource.object_name: dict(resource.inputs) for resource in record.all(kind)}))
"""

# Runs in a copy: deploys a configuration to Pulumi's mocks, and reads an output with the typed view.
READ = """
import asyncio, json, sys
import pulumi, pytest
from gke_ai_outputs import StackOutputs
from tests.support.recorder import run_program

asyncio.set_event_loop(asyncio.new_event_loop())
with pytest.MonkeyPatch.context() as monkeypatch:
    outputs = run_program(json.load(sys.stdin), False, monkeypatch).outputs

class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args): return "id", {"name": "platform", "outputs": outputs, "secretOutputNames": []}
    def call(self, args): return {}

pulumi.runtime.set_mocks(Mocks())

@pulumi.runtime.test
def read():
    return StackOutputs("o/p/s").cohorts.apply(lambda cohorts: print("RESULT" + json.dumps(cohorts)))
read()
"""

# Runs in a copy: prints the emulator's node of a machine type.
NODES = """
import json, sys
from emulator.nodes import objects as nodes
from emulator.cloud.records import ClusterRecord, PoolRecord

cluster = ClusterRecord("c", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1")
print("RESULT" + json.dumps(nodes.new_nodes(cluster, PoolRecord("p", json.load(sys.stdin), ["us-central1-a"]), [], 1)))
"""


@pytest.fixture(scope="module")
def additions(tmp_path_factory: pytest.TempPathFactory) -> Added:
    """Applies the guides to a copy of the repository, and deploys servers with the new engine and the new keys."""
    copy = copy_to(tmp_path_factory.mktemp("copy"))
    files = {guide: apply(guide, copy) for guide in GUIDES}
    gpus = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}
    good = {"cluster": CLUSTER, "gpuPools": [gpus], "cpuPools": [POOL], "serving": SERVERS}
    bad = {
        **good,
        "cpuPools": [{**POOL, "machineType": "e2-standard-5"}],
        "serving": [{**server, **mistake} for server, mistake in zip(SERVERS, MISTAKES, strict=True)],
    }
    return Added(files, result_of(PROBE, copy, [good, bad]))


def result_of(program: str, copy: Path, given: object) -> Any:
    """What a program prints in a copy of the repository."""
    probe = subprocess.run(
        [sys.executable, "-c", program],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    return json.loads(probe.stdout.partition("RESULT")[2])


def apply(guide: str, copy: Path) -> set[str]:
    """Applies the blocks of a guide to a copy of the repository, and returns the files that they touch."""
    touched = set()
    for place in PLACE.finditer((ROOT / "docs" / guide).read_text()):
        for block in BLOCK.finditer(place["text"]):
            touched.add(place["path"])
            file = copy / place["path"]
            if block["language"] == "python":
                assert not file.exists(), f"{guide}: {place['path']} exists already"
                file.write_text(block["content"])
            else:
                for hunk in block["content"].split("@@\n"):
                    file.write_text(changed(file.read_text(), hunk, f"{guide}: {place['path']}"))
    return touched


def changed(text: str, hunk: str, where: str) -> str:
    """The text with a hunk of a diff applied, whose old lines must stand in it once."""
    lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
    old = "".join(line for sign, line in lines if sign != "+")
    new = "".join(line for sign, line in lines if sign != "-")
    assert text.count(old) == 1, f"{where}: the place of the block is not in the file, or not only once:\n{old}"
    return text.replace(old, new)


def test_engine_is_added_in_five_files(additions: Added) -> None:
    assert additions.files["adding-an-engine.md"] == {
        "gke_ai/catalog/engines/engine.py",
        "gke_ai/settings/model/serving.py",
        "components/serving/sglang.py",
        "gke_ai/program/servers.py",
        "components/__init__.py",
    }


def test_program_deploys_the_added_engine(additions: Added) -> None:
    container = additions.result["containers"]["sglang"]
    assert container["image"].startswith("lmsysorg/sglang:")
    assert container["command"] == ["python3", "-m", "sglang.launch_server"]
    assert container["args"] == [
        "--host=0.0.0.0",
        "--enable-metrics",
        "--model-path=meta-llama/Llama-3.1-8B-Instruct",
        "--port=8000",
        "--tensor-parallel-size=2",
        "--context-length=8192",
        "--max-running-requests=64",
    ]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert additions.result["ports"] == [{"protocol": "TCP", "port": 8000, "targetPort": 8000}]


def test_schema_page_and_package_have_the_keys_of_the_added_engine(additions: Added) -> None:
    for generated in additions.result["generated"]:
        assert "maxRunningRequests" in generated
        assert "SGLang" in generated
    assert "maxRunningRequests" in additions.result["inputs"]


def test_misspelled_key_of_the_added_engine_is_refused(additions: Added) -> None:
    refusal = additions.result["refusal"]
    assert "maxRunningRequest is not a key of an SGLang server" in refusal
    assert "Did you mean maxRunningRequests?" in refusal


def test_smoke_check_and_emulator_know_the_added_engine(additions: Added) -> None:
    assert additions.result["request"] == {"model": "m", "prompt": "Hello", "max_tokens": 7}
    assert additions.result["stub"]


def test_kind_of_pool_is_added_in_five_files(additions: Added) -> None:
    assert additions.files["adding-a-pool-kind.md"] == {
        "gke_ai/settings/model/pools.py",
        "gke_ai/settings/model/settings.py",
        "components/pools/cpu_pool.py",
        "gke_ai/program/pools.py",
        "components/__init__.py",
    }


def test_program_deploys_the_added_pool(additions: Added) -> None:
    pool = additions.result["pool"]
    assert pool["nodeConfig"]["machineType"] == "e2-standard-4"
    assert pool["nodeConfig"]["spot"]
    assert pool["autoscaling"]["totalMaxNodeCount"] == 4


def test_rules_and_generated_pages_know_the_added_pool(additions: Added) -> None:
    assert "gke-ai:cpuPools[0].machineType: e2-standard-5 is not a machine type" in additions.result["refusal"]
    for generated in additions.result["generated"][:2]:
        assert "cpuPools" in generated
    assert "CpuNodePool" in additions.result["generated"][2]


def test_key_is_added_in_one_file(additions: Added) -> None:
    assert additions.files["adding-a-key.md"] == {"gke_ai/settings/model/serving.py"}


def test_engines_get_the_added_keys(additions: Added) -> None:
    containers = additions.result["containers"]
    assert "--max-logprobs=8" in containers["vllm"]["args"]
    assert {"name": "MAX_CONCURRENT_REQUESTS", "value": "128"} in containers["tgi"]["env"]
    for generated in additions.result["generated"]:
        assert "maxLogprobs" in generated
        assert "maxConcurrentRequests" in generated


def test_added_keys_cannot_be_set_twice(additions: Added) -> None:
    assert "maxLogprobs sets max-logprobs" in additions.result["refusal"]
    assert "maxConcurrentRequests sets MAX_CONCURRENT_REQUESTS" in additions.result["refusal"]


def test_capacity_mode_is_added_in_five_files(tmp_path: Path) -> None:
    copy = copy_to(tmp_path)
    assert apply("adding-a-capacity-mode.md", copy) == {
        "gke_ai/catalog/machines/capacity.py",
        "gke_ai/settings/model/capacity.py",
        "components/pools/node_pool.py",
        "gke_ai/registered/pools.py",
        "emulator/google/rules.py",
    }
    pool = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1, "capacity": {"mode": "preemptible"}}
    pools = result_of(DEPLOY, copy, ["NodePool", {"cluster": CLUSTER, "gpuPools": [pool]}])
    assert pools["l4"]["nodeConfig"]["preemptible"]
    read = "import sys, json; from gke_ai.registered.pools import capacity_mode; "
    read += 'print("RESULT" + json.dumps(capacity_mode(json.load(sys.stdin))))'
    assert result_of(read, copy, pools["l4"]) == "preemptible"


def test_engine_on_tpus_is_added_in_five_files(tmp_path: Path) -> None:
    copy = copy_to(tmp_path)
    assert apply("adding-a-tpu-engine.md", copy) == {
        "gke_ai/catalog/engines/engine.py",
        "gke_ai/settings/model/serving.py",
        "components/serving/maxserve.py",
        "gke_ai/program/servers.py",
        "components/__init__.py",
    }
    pool = {"name": "v5e", "version": "v5e", "topology": "2x2", "zones": ["us-central1-a"], "nodesPerZone": 1}
    server = {"name": "max", "engine": "maxserve", "model": "google/gemma-3-4b-it", "pool": "v5e"}
    deployed = result_of(DEPLOY, copy, ["Deployment", {"cluster": CLUSTER, "tpuPools": [pool], "serving": [server]}])
    (container,) = deployed["max"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--model=google/gemma-3-4b-it", "--port=8000"]
    assert container["resources"]["limits"] == {"google.com/tpu": "4"}


def test_output_is_added_in_two_files(tmp_path: Path) -> None:
    copy = copy_to(tmp_path)
    assert apply("adding-an-output.md", copy) == {"gke_ai_outputs/model.py", "gke_ai/program/outputs.py"}
    flavors = [{"flavor": "default", "quota": {"cpu": "1"}}]
    queues = [{"name": "a", "cohort": "all", "flavors": flavors}, {"name": "b", "flavors": flavors}]
    config = {"cluster": CLUSTER, "queues": {"flavors": [{"name": "default"}], "clusterQueues": queues}}
    assert result_of(READ, copy, {f"gke-ai:{key}": value for key, value in config.items()}) == ["all"]


def test_machine_types_are_added_in_one_line(tmp_path: Path) -> None:
    copy = copy_to(tmp_path)
    assert apply("adding-a-machine-type.md", copy) == {"gke_ai/catalog/machines/machines.yaml"}
    (block,) = BLOCK.finditer((ROOT / "docs" / "adding-a-machine-type.md").read_text())
    assert len(re.findall(r"^[+-]", block["content"], re.M)) == 1
    cluster = CLUSTER | {"systemPool": {"machineType": "n1-highmem-4"}}
    (pool,) = result_of(DEPLOY, copy, ["NodePool", {"cluster": cluster}]).values()
    assert pool["nodeConfig"]["machineType"] == "n1-highmem-4"
    (node,) = result_of(NODES, copy, "n1-highmem-4")
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "n1-highmem-4"
    assert 20 * 2**20 < int(node["status"]["allocatable"]["memory"].removesuffix("Ki")) < 26 * 2**20
