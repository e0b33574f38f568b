"""GPUDirect-TCPX and TCPXO: what a run over several nodes of A3 High or A3 Mega makes of networks, nodes and pods."""

import json
from typing import Any

import pytest
import yaml

from gke_ai.catalog.fabric.gpudirect import DAEMON_REQUESTS, GPUDIRECT_LABEL, MTU, cidr
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.catalog.section_files import PREFIX
from tests.support.mistakes import base
from tests.support.recorder import Record, load_stack, shared_record

Object = dict[str, Any]
# Base, technology and number of networks.
MACHINES = [("high", "tcpx", 4), ("good", "tcpxo", 8)]


def stack_of(name: str = "good", **changes: Any) -> Object:
    """A stack with a run of two nodes."""
    values = base("gpudirect", name)
    values["gpuPools"][0] |= changes
    return {f"{PREFIX}{key}": value for key, value in values.items()}


def template_of(record: Record) -> Object:
    """The template of the pods of the run."""
    (job,) = record.one("JobSet").inputs["spec"]["replicatedJobs"]
    template: Object = job["template"]["spec"]["template"]
    return template


@pytest.mark.parametrize(("name", "technology", "count"), MACHINES)
def test_a_pool_has_one_network_for_each_nic(name: str, technology: str, count: int) -> None:
    record = shared_record(stack_of(name))
    names = [f"llm-cluster-gpudirect-{number}" for number in range(1, count + 1)]
    networks = {network.object_name: network.inputs for network in record.all("Network") if network.inputs.get("mtu")}
    assert sorted(networks) == names
    assert {network["mtu"] for network in networks.values()} == {MTU}
    ranges = {subnet.object_name: subnet.inputs["ipCidrRange"] for subnet in record.all("Subnetwork")}
    assert [ranges[name] for name in names] == [cidr(number) for number in range(1, count + 1)]
    rules = {rule.object_name: rule.inputs["sourceRanges"] for rule in record.all("Firewall")}
    assert rules == {name: [ranges[name]] for name in names}
    cluster = record.one("Cluster").inputs
    assert (cluster["enableMultiNetworking"], cluster["datapathProvider"]) == (True, "ADVANCED_DATAPATH")
    pool = record.one("NodePool", "mega")
    configs = pool.inputs["networkConfig"]["additionalNodeNetworkConfigs"]
    assert [config["network"] for config in configs] == [config["subnetwork"] for config in configs] == names
    assert pool.inputs["nodeConfig"]["labels"][GPUDIRECT_LABEL] == technology
    assert f"GKENetworkParamSet vpc{count}" in record.waits_for(pool)
    # In the cluster, an object for each network, and the agents.
    parameters = record.all("GKENetworkParamSet")
    assert [item.inputs["spec"]["deviceMode"] for item in parameters] == ["NetDevice"] * count
    named = [item for item in record.all("Network") if item.inputs.get("kind") == "Network"]
    references = sorted(item.inputs["spec"]["parametersRef"]["name"] for item in named)
    assert references == [f"vpc{n + 1}" for n in range(count)]
    agents = {item.object_name: item.inputs["spec"]["template"]["spec"] for item in record.all("DaemonSet")}
    assert agents.keys() == {f"nccl-{technology}-installer", "device-injector"}
    for spec in agents.values():
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0] == {"key": GPUDIRECT_LABEL, "operator": "In", "values": [technology]}
    assert all(item.inputs["metadata"]["namespace"] == "gpudirect" for item in record.all("DaemonSet"))


@pytest.mark.parametrize(("name", "technology", "count"), MACHINES)
def test_pods_have_the_interfaces_the_daemon_and_the_variables(name: str, technology: str, count: int) -> None:
    template = template_of(shared_record(stack_of(name)))
    annotations, pod = template["metadata"]["annotations"], template["spec"]
    interfaces = json.loads(annotations["networking.gke.io/interfaces"])
    assert [item["network"] for item in interfaces] == ["default", *(f"vpc{n + 1}" for n in range(count))]
    devices = [item["path"] for item in yaml.safe_load(annotations[f"devices.gke.io/container.{technology}-daemon"])]
    assert {"/dev/nvidia7", "/dev/nvidiactl"} <= set(devices)
    assert ("/dev/dmabuf_import_helper" in devices) == (technology == "tcpxo")
    (daemon,), (container,) = pod["initContainers"], pod["containers"]
    assert daemon["restartPolicy"] == "Always"
    assert "NET_ADMIN" in daemon["securityContext"]["capabilities"]["add"]
    assert pod["nodeSelector"][GPUDIRECT_LABEL] == technology
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["NCCL_SOCKET_IFNAME"] == "eth0"
    assert variables["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in (*daemon["volumeMounts"], *container["volumeMounts"])} == volumes


def test_pods_of_a_fine_tuning_run_have_the_same() -> None:
    values = stack_of()
    pods = {"pool": "mega", "pods": 2, "gpusPerPod": 8, "volume": {"bucket": "checkpoints"}}
    of_job = template_of(shared_record(values))
    values[f"{PREFIX}training"] = [{"name": "tune", "queue": "lq", "namespace": "llm", **pods}]
    template = shared_record(values).one("Job").inputs["spec"]["template"]
    annotations, hosts = of_job["metadata"]["annotations"], ("networking.gke.io", "devices.gke.io")
    shared = {key: text for key, text in annotations.items() if key.split("/")[0] in hosts}
    assert len(shared) == 3
    assert shared.items() <= template["metadata"]["annotations"].items()
    pod = template["spec"]
    assert pod["initContainers"] == of_job["spec"]["initContainers"]
    assert pod["nodeSelector"][GPUDIRECT_LABEL] == "tcpxo"
    (daemon,), (container,) = pod["initContainers"], pod["containers"]
    mounted = {mount["name"] for mount in (*daemon["volumeMounts"], *container["volumeMounts"])}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "eth0"} in container["env"]
    assert "set_nccl_env" not in container["command"][2]


def test_the_daemon_counts_in_the_queue_and_the_agents_on_the_node() -> None:
    values = stack_of()
    with_networks = load_stack(values)
    values[f"{PREFIX}training"][0]["acceptSlowNetwork"] = True
    without = load_stack(values)
    daemon = parse_quantity(DAEMON_REQUESTS["cpu"])
    (run,), (slow,) = with_networks.placed_runs, without.placed_runs
    assert run.queued_request["cpu"] - slow.queued_request["cpu"] == daemon
    assert without.node_pools[0].room["cpu"] - with_networks.node_pools[0].room["cpu"] == parse_quantity("300m")


def test_a_key_keeps_the_networks_without_a_run_and_multi_networking_keeps_the_cluster() -> None:
    values = stack_of(gpuDirect=True)
    values[f"{PREFIX}training"] = []
    assert load_stack(values).pools[0].fabric.technology is not None
    values = stack_of(gpuDirect=False)
    values[f"{PREFIX}training"][0]["acceptSlowNetwork"] = True
    before = shared_record(values).one("Cluster").replacement_trigger
    values[f"{PREFIX}cluster"]["multiNetworking"] = False
    assert shared_record(values).one("Cluster").replacement_trigger == before
