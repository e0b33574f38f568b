"""Only here: the real Kueue and scheduler give the bandwidth test its nodes and NICs, and nothing of it stays."""

import json
from functools import partial

from gke_ai.catalog.fabric.rdma import NICS_PER_POD
from tests.support.emulator import Emulator, eventually
from tests.support.rdma import allocated, values
from tests.support.submitted import line
from tests.support.workloads import finish

# Pods of the emulator run no program: the test writes what a kubelet would have recorded of it.
WRITE = """
import datetime, json, sys
from emulator.cloud.folder import Folder
from emulator.pods.logs import file_of, stamp
name, pod, *lines = sys.argv[1:]
file = file_of(Folder(name), json.loads(pod), "training", 0)
file.parent.mkdir(parents=True, exist_ok=True)
now = stamp(datetime.datetime.now(datetime.UTC))
file.write_text("".join(f"{now} stdout F {line}\\n" for line in lines))
"""


def quotas_are_counted(emulator: Emulator) -> bool:
    """Whether the API server knows what is used of each resource of the tenant's quotas."""
    quotas = emulator.get("resourcequotas", "-n", "llm")
    return all(set(quota["spec"]["hard"]) <= set(quota.get("status", {}).get("used", {})) for quota in quotas)


def left(emulator: Emulator) -> list[str]:
    """Names of what a test has in the tenant's namespace."""
    kinds = ("jobsets", "configmaps", "pods", "resourceclaims")
    items = [item for kind in kinds for item in emulator.get(kind, "-n", "llm")]
    return [item["metadata"]["name"] for item in items if item["metadata"]["name"].startswith("bandwidth")]


def test_two_nodes_with_their_nics_are_measured_and_given_back_also_after_a_time(emulator: Emulator) -> None:
    content = values([])
    content["gpuPools"][0]["rdma"] = True
    emulator.make("up", emulator.written(**content))
    eventually(lambda: quotas_are_counted(emulator), "quotas are counted", 90)
    file = emulator.state / "result.json"
    command = ("gke-ai", "verify", "--stack", emulator.stack, "--bandwidth", "b200", "--json", str(file))
    process = emulator.start(*command)

    pods = partial(emulator.get, "pods", "-n", "llm", "--field-selector=status.phase=Running")
    eventually(lambda: len(pods()) == 2 or process.poll() is not None, "the test has its nodes", 60)
    assert process.poll() is None, process.communicate()[0]
    first, second = sorted(pods(), key=lambda pod: str(pod["metadata"]["name"]))
    assert first["spec"]["nodeName"] != second["spec"]["nodeName"]
    assert [len(devices) for devices in allocated(emulator)] == [NICS_PER_POD, NICS_PER_POD]
    name = emulator.outputs()["clusterName"]
    lines = ("NCCL INFO Using network gIB", json.dumps(line(1.0, bytes=2**20)), json.dumps(line(360.0)))
    emulator.run("python", "-c", WRITE, name, json.dumps({"metadata": first["metadata"]}), *lines)
    job = first["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    finish(emulator, job, "llm")
    printed = process.communicate(timeout=120)[0]
    assert process.returncode == 0, printed
    assert "360.0 GB/s" in printed
    assert "no floor is published for a4-highgpu-8g" in printed
    assert json.loads(file.read_text())["network"] == "gIB"
    eventually(lambda: not left(emulator), "the test is deleted")

    command = ("gke-ai", "verify", "--stack", emulator.stack, "--bandwidth", "b200", "--minutes", "0.2")
    printed = emulator.run(*command, fails=True)
    assert "had no result within 0.2 min, and is deleted" in printed
    eventually(lambda: not left(emulator), "the test is deleted")
