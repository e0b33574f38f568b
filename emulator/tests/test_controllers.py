"""Containers that run as local processes: their programs, arguments and scrape targets."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import yaml

from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.machine import paths, processes
from emulator.machine.folders import Outside
from emulator.pods import programs, scraping
from emulator.pods.controllers import ContainerProcess
from emulator.pods.programs import Program, known
from emulator.pods.sandbox import Container, Sandbox
from gke_ai.catalog import versions
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.kueue.operators import KUBERAY, TRAINER

Object = dict[str, Any]
CLUSTER = ClusterRecord("c", "proj", "us-west4", "standard", ["us-west4-a"], "1.36.1-gke.1")
EPP = "registry.k8s.io/gateway-api-inference-extension/epp:v1.3.0"
LABELS = {"project_id": "proj", "location": "us-west4", "cluster": "c", "namespace": "llm", "job": "m"}


def pod(*containers: Object, uid: str = "u1", owner: str = "ReplicaSet", **labels: str) -> Object:
    metadata: Object = {"namespace": "llm", "name": "p", "uid": uid, "labels": labels or {"app": "a"}}
    metadata["ownerReferences"] = [{"kind": owner, "name": "o", "controller": True}]
    status = {"phase": "Running", "podIP": "10.0.0.7"}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": list(containers)}, "status": status}


def container(tmp_path: Path, spec: Object, ports: dict[int, int] | None = None, **pod_spec: object) -> Container:
    async def forward(target: str) -> int:
        return {"prometheus.llm.svc:9090": 30000}[target]

    whole = pod(spec)
    whole["spec"] |= pod_spec
    sandbox = Sandbox(tmp_path / spec["name"], {} if ports is None else ports)
    sandbox.root.mkdir(parents=True)
    return Container(Folder("c"), whole, spec, sandbox, forward)


def command(container: Container) -> list[str]:
    program = known(container.spec["image"])
    assert program is not None
    return asyncio.run(program.command(container))


def stub(container: Container) -> tuple[str, Object]:
    """The name and the settings of a container's stub."""
    *_, stub_type, settings = command(container)
    return stub_type, json.loads(settings)


# --------------------------------------------------------------------------------------------------------------- images
@pytest.mark.parametrize(
    "image",
    [
        f"{versions.KUEUE_IMAGE}:v{versions.KUEUE_VERSION}",
        f"{versions.JOBSET_IMAGE}:v{versions.JOBSET_VERSION}",
        f"{versions.JOBSET_IMAGE}@sha256:0123",
        ENGINES["tgi"].image,
        ENGINES["vllm"].image,
        ENGINES["jetstream"].image,
        versions.JETSTREAM_HTTP_IMAGE,
        versions.PROMETHEUS_FRONTEND_IMAGE,
        versions.PROMETHEUS_ADAPTER_IMAGE,
        versions.STACKDRIVER_ADAPTER_IMAGE,
        f"{TRAINER.image}:v{TRAINER.version}",
        f"{KUBERAY.image}:v{KUBERAY.version}",
        "rayproject/ray:2.52.0",
        EPP,
        "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/"
        "huggingface-text-generation-inference-cu121.2-2.ubuntu2204.py310",
    ],
)
def test_every_image_that_the_product_deploys_is_known_whatever_its_tag(image: str) -> None:
    assert known(image) is not None


@pytest.mark.parametrize("image", ["registry.k8s.io/kueue/kueueviz:v1", "example.com/vllm/vllm-openai:v1", "python"])
def test_another_image_is_unknown(image: str) -> None:
    assert known(image) is None


# ---------------------------------------------------------------------------------------------------------------- ports
@pytest.mark.parametrize(
    ("spec", "port"),
    [
        ({"image": ENGINES["tgi"].image, "env": [{"name": "PORT", "value": "8080"}]}, 8080),
        ({"image": ENGINES["tgi"].image, "env": [{"name": "AIP_HTTP_PORT", "value": "8081"}]}, 8081),
        ({"image": ENGINES["tgi"].image, "args": ["--model-id", "m", "--port", "3000"]}, 3000),
        ({"image": ENGINES["tgi"].image, "ports": [{"containerPort": 8000}]}, 8000),
        ({"image": ENGINES["tgi"].image}, 80),
        ({"image": ENGINES["vllm"].image, "args": ["--model=m", "--port=8001"]}, 8001),
        ({"image": ENGINES["vllm"].image}, 8000),
        ({"image": versions.JETSTREAM_HTTP_IMAGE}, 8000),
    ],
)
def test_a_server_listens_where_its_image_would(tmp_path: Path, spec: Object, port: int) -> None:
    ports: dict[int, int] = {}
    _, settings = stub(container(tmp_path, {"name": "c"} | spec, ports))
    assert ports[port] == settings["port"]


def test_containers_of_a_pod_share_one_network(tmp_path: Path) -> None:
    ports: dict[int, int] = {}
    arguments = ["per_device_batch_size=4", "port=9000", "prometheus_port=9100"]
    chips = {"limits": {"google.com/tpu": "8"}}
    engine = {"name": "e", "image": ENGINES["jetstream"].image, "args": arguments, "resources": chips}
    selector = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    stub_type, settings = stub(container(tmp_path, engine, ports, nodeSelector=selector))
    _, front = stub(container(tmp_path, {"name": "h", "image": versions.JETSTREAM_HTTP_IMAGE}, ports))
    assert (stub_type, settings["slots"], settings["chips"]["memory"]) == ("maxengine", 32, 32 * 2**30)
    assert front["engine_port"] == settings["port"] == ports[9000]
    assert settings["metrics_port"] == ports[9100]


def test_a_port_is_returned_only_once_even_without_a_listener() -> None:
    ports = [processes.free_ports(1)[0] for _ in range(300)]
    assert len(set(ports)) == len(ports)


# ------------------------------------------------------------------------------------------------------------- programs
def test_no_link_in_the_shared_folder_of_certificates_creates_a_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may write into /tmp, where JobSet waits for a certificate."""
    awaited = tmp_path / "k8s-webhook-server" / "serving-certs" / "tls.crt"
    awaited.parent.mkdir(parents=True)
    awaited.symlink_to(tmp_path / "victim")
    monkeypatch.setattr(programs, "JOBSET_AWAITS", awaited)
    server = container(tmp_path, {"name": "c", "image": versions.JOBSET_IMAGE, "args": ["--config=/etc/given.yaml"]})
    server.sandbox.mounts.append("/etc")
    server.sandbox.inside("/etc").mkdir()
    server.sandbox.inside("/etc/given.yaml").write_text("{}\n")
    command(server)
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("image", [versions.KUEUE_IMAGE, versions.JOBSET_IMAGE])
def test_a_manager_keeps_its_configuration_except_addresses_and_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setattr(programs, "JOBSET_AWAITS", tmp_path / "awaited")
    server = container(
        tmp_path, {"name": "c", "image": image, "args": ["--zap-log-level=2", "--config=/etc/given.yaml"]}
    )
    server.sandbox.mounts.append("/etc")
    server.sandbox.inside("/etc").mkdir()
    server.sandbox.inside("/etc/given.yaml").write_text("internalCertManagement: {enable: true}\n")
    words = command(server)
    adapted = yaml.safe_load(Path(words[1].removeprefix("--config=")).read_text())
    assert words[2:] == [f"--kubeconfig={server.kubeconfig}", "--zap-log-level=2"]
    assert adapted["internalCertManagement"] == {"enable": True}
    assert adapted["webhook"]["port"] == server.sandbox.ports[9443]
    assert adapted["webhook"]["certDir"].startswith(str(server.sandbox.root))
    assert adapted["leaderElection"]["resourceNamespace"] == "llm"


def test_trainer_gets_certificates_from_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration has no field for the folder, and it decodes the file strictly."""
    monkeypatch.setattr(programs, "JOBSET_AWAITS", tmp_path / "awaited")
    monkeypatch.setattr(processes, "tool", str)
    file = "/controller_manager_config.yaml"
    server = container(tmp_path, {"name": "c", "image": TRAINER.image, "args": [f"--config={file}"]})
    server.sandbox.mounts.append(file)
    server.sandbox.inside(file).write_text('leaderElection: {leaderElect: true, resourceNamespace: ""}\n')
    adapted = yaml.safe_load(Path(command(server)[1].removeprefix("--config=")).read_text())
    assert adapted["webhook"] == {"host": "127.0.0.1", "port": server.sandbox.ports[9443]}
    assert adapted["statusServer"] == {"port": server.sandbox.ports[10443]}
    assert adapted["leaderElection"]["resourceNamespace"] == "llm"


def test_kuberay_asks_ray_heads_through_the_proxy_of_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "tool", str)
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    Folder("c").path.mkdir()
    Folder("c").pod_proxy.write_text("127.0.0.1:20000")
    arguments = ["--log-stdout-encoder", "json", "--use-kubernetes-proxy=false", "--feature-gates=A=true"]
    words = command(container(tmp_path, {"name": "ray", "image": KUBERAY.image, "args": arguments}))
    assert words[:3] == ["/usr/bin/env", "HTTP_PROXY=http://127.0.0.1:20000", "kuberay-operator"]
    assert "--leader-election-namespace=llm" in words
    assert words[-4:] == ["--log-stdout-encoder", "json", "--use-kubernetes-proxy=false", "--feature-gates=A=true"]


def test_the_adapter_queries_the_prometheus_of_its_url(tmp_path: Path) -> None:
    arguments = [
        "--prometheus-url=http://prometheus.llm.svc:9090/",
        "--secure-port=6443",
        "--cert-dir=/tmp/cert",
        "--v=4",
    ]
    words = command(
        container(
            tmp_path,
            {"name": "c", "image": versions.PROMETHEUS_ADAPTER_IMAGE, "command": ["/adapter"], "args": arguments},
        )
    )
    assert "--prometheus-url=http://127.0.0.1:30000/" in words
    assert sum(word.startswith(("--prometheus-url", "--secure-port", "--cert-dir")) for word in words) == 3
    assert words[-1] == "--v=4"


def test_an_endpoint_picker_keeps_its_arguments_and_moves_its_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "tool", str)
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    Folder("c").path.mkdir()
    Folder("c").pod_proxy.write_text("127.0.0.1:20000")
    arguments = ["--pool-name", "gemma", "--grpc-port=9100", "--refresh-metrics-interval=1s"]
    picker = container(tmp_path, {"name": "epp", "image": EPP, "args": arguments})
    words = command(picker)
    ports = picker.sandbox.ports
    assert words == [
        "/usr/bin/env",
        f"KUBECONFIG={picker.kubeconfig}",
        "HTTP_PROXY=http://127.0.0.1:20000",
        "epp",
        *arguments,
        f"--grpc-port={ports[9100]}",
        f"--grpc-health-port={ports[9003]}",
        f"--metrics-port={ports[9090]}",
    ]
    del picker.spec["args"][3]
    assert command(picker)[-1] == "--refresh-metrics-interval=200ms"


# -------------------------------------------------------------------------------------------------------- hostile pods
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder of a cluster, for the logs of its containers."""
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder("c")
    folder.log.mkdir(parents=True)
    return folder


KUBECONFIG = ["--kubeconfig=/cfg/evil", "-kubeconfig=/cfg/evil", "--lister-kubeconfig", "/cfg/evil", "--cert-dir=/x"]


@pytest.mark.parametrize(
    "image",
    [
        *(versions.KUEUE_IMAGE, versions.JOBSET_IMAGE, versions.PROMETHEUS_ADAPTER_IMAGE),
        *(TRAINER.image, KUBERAY.image, EPP),
    ],
)
def test_a_controller_gets_no_kubeconfig_of_a_pod_whose_plugin_it_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setattr(programs, "JOBSET_AWAITS", tmp_path / "awaited")
    monkeypatch.setattr(processes, "tool", str)
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    Folder("c").path.mkdir(exist_ok=True)
    Folder("c").pod_proxy.write_text("127.0.0.1:20000")
    arguments = ["--prometheus-url=http://prometheus.llm.svc:9090/", *KUBECONFIG, "--config=/cfg/config"]
    server = container(tmp_path, {"name": "evil", "image": image, "args": arguments})
    server.sandbox.mounts.append("/cfg")
    server.sandbox.inside("/cfg").mkdir()
    server.sandbox.inside("/cfg/config").write_text("{}")
    words = command(server)
    assert not [word for word in words if "/cfg/evil" in word or word in KUBECONFIG]


def test_a_controller_reads_no_configuration_outside_its_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "tool", str)
    (tmp_path / "private").write_text("{}")
    arguments = ["--prometheus-url=http://prometheus.llm.svc:9090/", f"--config={tmp_path}/private"]
    adapter = container(tmp_path, {"name": "a", "image": versions.PROMETHEUS_ADAPTER_IMAGE, "args": arguments})
    assert not [word for word in command(adapter) if "private" in word]
    with pytest.raises(Outside, match="is in no volume of the pod"):
        command(container(tmp_path, {"name": "k", "image": versions.KUEUE_IMAGE, "args": arguments}))


def test_kueue_runs_no_credential_plugin_of_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "tool", str)
    server = container(
        tmp_path, {"name": "c", "image": f"{versions.KUEUE_IMAGE}:v{versions.KUEUE_VERSION}", "args": ["--config=/k"]}
    )
    server.sandbox.mounts.append("/k")
    provider = {"name": "p", "execConfig": {"command": "/bin/sh", "args": ["-c", "id"]}}
    settings = {"multiKueue": {"clusterProfile": {"credentialsProviders": [provider]}}, "namespace": "k"}
    server.sandbox.inside("/k").write_text(yaml.safe_dump(settings))
    adapted = yaml.safe_load(Path(command(server)[1].removeprefix("--config=")).read_text())
    assert "multiKueue" not in adapted
    assert adapted["featureGates"]["MultiKueue"] is False


@pytest.mark.parametrize("tag", ["x/../../evil", "../evil", "/evil"])
def test_a_tag_names_no_program_of_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(processes, "tool", str)
    server = container(tmp_path, {"name": "c", "image": f"{versions.KUEUE_IMAGE}:{tag}", "args": ["--config=/k"]})
    server.sandbox.mounts.append("/k")
    server.sandbox.inside("/k").write_text("{}")
    assert command(server)[0] == "kueue"


def test_a_process_gets_no_variable_that_changes_what_it_runs(folder: Folder) -> None:
    hostile = ("LD_PRELOAD", "PATH", "KUBECONFIG", "PYTHONPATH", "GODEBUG", "GKE_AI_CLUSTER", "BASH_ENV")

    async def shows(_: Container) -> list[str]:
        return ["/bin/sh", "-c", "/usr/bin/env; echo end; exec /bin/sleep 600"]

    spec = {"name": "a", "env": [{"name": name, "value": "canary"} for name in (*hostile, "NAMED")]}

    async def run() -> str:
        program = Program("i", shows, ("NAMED",))
        process = ContainerProcess(folder, Mock(), Mock(), pod(spec), spec, program, {}, Mock())
        log = folder.log / "llm_p_a.log"
        while not (log.exists() and "end" in log.read_text()):
            await asyncio.sleep(0.05)
        process.stop()
        while processes.of(folder.path):
            await asyncio.sleep(0.05)
        return log.read_text()

    printed = asyncio.run(asyncio.wait_for(run(), 60))
    assert [line for line in printed.splitlines() if "canary" in line] == ["NAMED=canary"]


# -------------------------------------------------------------------------------------------------------- start and end
def test_a_container_starts_although_the_api_server_fails_at_first(folder: Folder) -> None:
    secret = httpx.Response(200, json={"data": {"key": base64.b64encode(b"value").decode()}})
    answers = Mock(side_effect=[httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(404), secret])

    def api(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/namespaces/llm/secrets/s"
        response: httpx.Response = answers()
        return response

    async def shows(_: Container) -> list[str]:
        return ["sh", "-c", 'echo "$TOKEN"; exec sleep 600']

    reference = {"secretKeyRef": {"name": "s", "key": "key"}}
    spec = {"name": "a", "env": [{"name": "TOKEN", "valueFrom": reference}]}
    program = Program("i", shows, ("TOKEN",))

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://c") as client:
            process = ContainerProcess(folder, client, Mock(), pod(spec), spec, program, {}, Mock())
            log = folder.log / "llm_p_a.log"
            while not (log.exists() and "value" in log.read_text()):
                await asyncio.sleep(0.05)
            process.stop()
            while processes.of(folder.path):
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(run(), 60))


# ------------------------------------------------------------------------------------------------------------- scraping
def monitoring(endpoint: Object, **spec: object) -> Object:
    spec = {"selector": {"matchLabels": {"app": "a"}}, "endpoints": [{"interval": "5s"} | endpoint]} | spec
    return {"metadata": {"namespace": "llm", "name": "m"}, "spec": spec}


SERVER = {"name": "server", "ports": [{"name": "metrics", "containerPort": 9100}, {"containerPort": 8000}]}
SERVED = {"u1": {9100: 21000, 8000: 21001}}


def targets(endpoint: Object, scraped: Object, **spec: object) -> list[Object]:
    scrape = scraping.configuration(CLUSTER, [monitoring(endpoint, **spec)], [scraped], SERVED)
    scrape_targets: list[Object] = scrape["scrape_configs"][0]["static_configs"]
    return scrape_targets


WANTED = {"metadata": ["pod", "container", "node"]}


def test_a_port_by_name_adds_the_container_label() -> None:
    scrape_targets = targets({"port": "metrics"}, pod(SERVER), targetLabels=WANTED)
    own = {"instance": "p:metrics", "pod": "p", "node": "n1", "container": "server"}
    assert scrape_targets == [{"targets": ["127.0.0.1:21000"], "labels": LABELS | own}]


def test_a_port_by_number_adds_no_container_label() -> None:
    scrape_targets = targets({"port": 9100}, pod(SERVER), targetLabels=WANTED)
    assert scrape_targets == [
        {"targets": ["127.0.0.1:21000"], "labels": LABELS | {"instance": "p:9100", "pod": "p", "node": "n1"}}
    ]


def test_the_instance_of_a_daemonset_pod_is_its_node() -> None:
    (target,) = targets({"port": 9100}, pod(SERVER, owner="DaemonSet"))
    assert target["labels"]["instance"] == "n1:9100"


def test_labels_of_the_pod_are_carried_over() -> None:
    (target,) = targets({"port": 9100}, pod(SERVER), targetLabels={"fromPod": [{"from": "app", "to": "model"}]})
    assert target["labels"]["model"] == "a"


@pytest.mark.parametrize(
    ("endpoint", "scraped"),
    [
        ({"port": "metrics"}, pod(SERVER, app="b")),  # not selected
        ({"port": "metrics"}, pod(SERVER, uid="u2")),  # no local process
        ({"port": "other"}, pod(SERVER)),
        ({"port": 9999}, pod(SERVER)),
    ],
)
def test_pods_that_are_not_selected_or_not_served_are_no_targets(endpoint: Object, scraped: Object) -> None:
    assert targets(endpoint, scraped) == []


def test_another_namespace_is_not_scraped() -> None:
    elsewhere = pod(SERVER)
    elsewhere["metadata"]["namespace"] = "other"
    assert targets({"port": 9100}, elsewhere) == []


def test_an_endpoint_is_scraped_with_its_settings() -> None:
    rule = {"action": "drop", "sourceLabels": ["id"], "regex": "x"}
    endpoint = {"port": 9100, "path": "/", "interval": "15s", "timeout": "5s", "metricRelabeling": [rule]}
    (job,) = scraping.configuration(CLUSTER, [monitoring(endpoint)], [], {})["scrape_configs"]
    assert job == {
        "job_name": "PodMonitoring/llm/m/9100",
        "scrape_interval": "15s",
        "scrape_timeout": "5s",
        "metrics_path": "/",
        "metric_relabel_configs": [{"action": "drop", "source_labels": ["id"], "regex": "x"}],
        "static_configs": [],
    }


def test_an_endpoint_with_authorization_is_scraped_with_the_credential() -> None:
    secret = {"name": "reader", "key": "token"}
    endpoint = {
        "port": 9100,
        "scheme": "https",
        "authorization": {"credentials": {"secret": secret}},
        "tls": {"insecureSkipVerify": True},
    }
    (job,) = scraping.configuration(CLUSTER, [monitoring(endpoint)], [], {})["scrape_configs"]
    file = scraping.credential("llm", **secret)
    assert job["authorization"] == {"type": "Bearer", "credentials_file": file}
    assert job["tls_config"] == {"insecure_skip_verify": True}
    assert scraping.wanted_secrets([monitoring(endpoint), monitoring({"port": 1})]) == {("llm", "reader", "token")}
