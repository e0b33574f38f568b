"""The guides to a new engine and a new output are complete: their own blocks, applied to a copy, are enough."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.repository import ROOT, copy_to

GUIDE = re.compile(r"^## (?P<title>[^\n]*)\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S)
PLACE = re.compile(r"^### [^\n]*?(?P<path>[\w/]+\.py)\n(?P<text>.*?)(?=^### |\Z)", re.M | re.S)
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
engine = ENGINES["sglang"]
print("RESULT" + json.dumps({
    "container": record.one("Deployment", "sglang").inputs["spec"]["template"]["spec"]["containers"][0],
    "ports": record.one("Service", "sglang").inputs["spec"]["ports"],
    "generated": [json.dumps(schema()), "".join(page() for page in settings_page.pages().values()), json.dumps(served)],
    "inputs": list(served["resources"]["gke-ai:index:SglangServer"]["inputProperties"]),
    "refusal": refusal,
    "stub": known(engine.image) is not None,
    "request": engine.body("m", "Hello", 7),
}))
"""
MODEL = {"model": "meta-llama/Llama-3.1-8B-Instruct", "maxModelLen": 8192, "maxRunningRequests": 64}
SERVER = {"name": "sglang", "engine": "sglang", "accelerator": "nvidia-l4", "gpus": 2, **MODEL}
CLUSTER = {"mode": "standard", "location": "us-central1"}
POOL = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}
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


def result_of(program: str, copy: Path, given: object) -> Any:
    """What a program prints in a copy of the repository."""
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(copy)}
    probe = subprocess.run(command, cwd=copy, env=environment, input=json.dumps(given), capture_output=True, text=True)
    assert probe.returncode == 0, probe.stderr
    return json.loads(probe.stdout.partition("RESULT")[2])


def apply(title: str, copy: Path) -> set[str]:
    """Applies the blocks of a guide to a copy of the repository, and returns the files that they touch."""
    guides = {guide["title"]: guide["text"] for guide in GUIDE.finditer((ROOT / "docs" / "adding.md").read_text())}
    touched = set()
    for place in PLACE.finditer(guides[title]):
        for block in BLOCK.finditer(place["text"]):
            touched.add(place["path"])
            file = copy / place["path"]
            if block["language"] == "python":
                assert not file.exists(), f"{title}: {place['path']} exists already"
                file.write_text(block["content"])
            else:
                for hunk in block["content"].split("@@\n"):
                    file.write_text(changed(file.read_text(), hunk, f"{title}: {place['path']}"))
    return touched


def changed(text: str, hunk: str, where: str) -> str:
    """The text with a hunk of a diff applied, whose old lines must stand in it once."""
    lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
    old = "".join(line for sign, line in lines if sign != "+")
    new = "".join(line for sign, line in lines if sign != "-")
    assert text.count(old) == 1, f"{where}: the place of the block is not in the file, or not only once:\n{old}"
    return text.replace(old, new)


def test_an_engine_is_added_in_five_files_and_then_deployed(tmp_path: Path) -> None:
    """Also the schema, the pages, the package, the smoke check and the emulator know it and its keys."""
    copy = copy_to(tmp_path)
    assert apply("A model server", copy) == {
        "gke_ai/catalog/engines/engine.py",
        "gke_ai/settings/model/serving.py",
        "components/serving/sglang.py",
        "gke_ai/program/servers.py",
        "components/__init__.py",
    }
    good = {"cluster": CLUSTER, "gpuPools": [POOL], "serving": [SERVER]}
    result = result_of(PROBE, copy, [good, {**good, "serving": [{**SERVER, "maxRunningRequest": 64}]}])
    container = result["container"]
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
    assert result["ports"] == [{"protocol": "TCP", "port": 8000, "targetPort": 8000}]
    for generated in result["generated"]:
        assert "maxRunningRequests" in generated
        assert "SGLang" in generated
    assert "maxRunningRequests" in result["inputs"]
    assert "maxRunningRequest is not a key of an SGLang server" in result["refusal"]
    assert "Did you mean maxRunningRequests?" in result["refusal"]
    assert result["request"] == {"model": "m", "prompt": "Hello", "max_tokens": 7}
    assert result["stub"]


def test_output_is_added_in_two_files(tmp_path: Path) -> None:
    copy = copy_to(tmp_path)
    assert apply("An output", copy) == {"gke_ai_outputs/model.py", "gke_ai/program/outputs.py"}
    flavors = [{"flavor": "default", "quota": {"cpu": "1"}}]
    queues = [{"name": "a", "cohort": "all", "flavors": flavors}, {"name": "b", "flavors": flavors}]
    config = {"cluster": CLUSTER, "queues": {"flavors": [{"name": "default"}], "clusterQueues": queues}}
    assert result_of(READ, copy, {f"gke-ai:{key}": value for key, value in config.items()}) == ["all"]
