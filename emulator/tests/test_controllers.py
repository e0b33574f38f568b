"""Containers that run as local processes: their programs, arguments and scrape targets."""

import asyncio
import base64
import json
import shutil
from collections.abc import Iterator, Mapping
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
EPP = "registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0"
GCR = "us-docker.pkg.dev/deeplearning-platform-release/gcr.io"
LABELS = {"project_id": "proj", "location": "us-west4", "cluster": "c", "namespace": "llm", "job": "m"}


def pod(
    *containers: Object, uid: str = "u1", owner: str = "ReplicaSet", namespace: str = "llm", **labels: str
) -> Object:
    metadata: Object = {"namespace": namespace, "name": "p", "uid": uid, "labels": labels or {"app": "a"}}
    metadata["ownerReferences"] = [{"kind": owner, "name": "o", "controller": True}]
    status = {"phase": "Running", "podIP": "10.0.0.7"}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": list(containers)}, "status": status}


def container(tmp_path: Path, spec: Object, files: Mapping[str, str] = {}, **pod_spec: object) -> Container:
    """A container with these files in its volumes, in a pod whose containers share ports."""

    async def forward(target: str) -> int:
        return {"prometheus.llm.svc:9090": 30000}[target]

    whole = pod(spec)
    whole["spec"] |= pod_spec
    sandbox = Sandbox(tmp_path / "pods" / spec["name"], PORTS)
    sandbox.root.mkdir(parents=True)
    for file, text in files.items():
        sandbox.mounts.append(file)
        sandbox.inside(file).parent.mkdir(parents=True, exist_ok=True)
        sandbox.inside(file).write_text(text)
    return Container(Folder("c"), whole, spec, sandbox, forward)


PORTS: dict[int, int] = {}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders of the test, a proxy of pods, and tools that are called by their names."""
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    monkeypatch.setattr(programs, "JOBSET_AWAITS", tmp_path / "awaited")
    monkeypatch.setattr(processes, "tool", str)
    Folder("c").log.mkdir(parents=True)
    Folder("c").pod_proxy.write_text("127.0.0.1:20000")
    yield
    PORTS.clear()


def command(container: Container) -> list[str]:
    program = known(container.spec["image"])
    assert program is not None
    return asyncio.run(program.command(container))


def adapted(words: list[str]) -> Object:
    """The configuration that a manager gets."""
    (file,) = (word.removeprefix("--config=") for word in words if word.startswith("--config="))
    content: Object = yaml.safe_load(Path(file).read_text())
    return content


def stub(container: Container) -> tuple[str, Object]:
    """The name and the settings of a container's stub."""
    *_, stub_type, settings = command(container)
    return stub_type, json.loads(settings)


@pytest.mark.parametrize(
    ("image", "is_known"),
    [
        (f"{versions.KUEUE_IMAGE}:v{versions.KUEUE_VERSION}", True),
        (f"{versions.JOBSET_IMAGE}:v{versions.JOBSET_VERSION}", True),
        (f"{versions.JOBSET_IMAGE}@sha256:0123", True),
        *((ENGINES[name].image, True) for name in ("tgi", "vllm", "jetstream")),
        (versions.JETSTREAM_HTTP_IMAGE, True),
        (versions.PROMETHEUS_FRONTEND_IMAGE, True),
        (versions.PROMETHEUS_ADAPTER_IMAGE, True),
        (versions.STACKDRIVER_ADAPTER_IMAGE, True),
        (f"{TRAINER.image}:v{TRAINER.version}", True),
        (f"{KUBERAY.image}:v{KUBERAY.version}", True),
        ("rayproject/ray:2.52.0", True),
        (EPP, True),
        (f"{GCR}/huggingface-text-generation-inference-cu121.2-2.ubuntu2204.py310", True),
        ("registry.k8s.io/kueue/kueueviz:v1", False),
        ("example.com/vllm/vllm-openai:v1", False),
        ("python", False),
    ],
)
def test_every_image_that_the_product_deploys_is_known_whatever_its_tag(image: str, is_known: bool) -> None:
    assert (known(image) is not None) == is_known


TGI, VLLM = ENGINES["tgi"].image, ENGINES["vllm"].image


@pytest.mark.parametrize(
    ("image", "more", "port"),
    [
        (TGI, {"env": [{"name": "PORT", "value": "8080"}]}, 8080),
        (TGI, {"env": [{"name": "AIP_HTTP_PORT", "value": "8081"}]}, 8081),
        (TGI, {"args": ["--model-id", "m", "--port", "3000"]}, 3000),
        (TGI, {"ports": [{"containerPort": 8000}]}, 8000),
        (TGI, {}, 80),
        (VLLM, {"args": ["--model=m", "--port=8001"]}, 8001),
        (VLLM, {}, 8000),
        (versions.JETSTREAM_HTTP_IMAGE, {}, 8000),
    ],
)
def test_a_server_listens_where_its_image_would(tmp_path: Path, image: str, more: Object, port: int) -> None:
    _, settings = stub(container(tmp_path, {"name": "c", "image": image} | more))
    assert PORTS[port] == settings["port"]


def test_containers_of_a_pod_share_one_network(tmp_path: Path) -> None:
    arguments = ["per_device_batch_size=4", "port=9000", "prometheus_port=9100"]
    chips = {"limits": {"google.com/tpu": "8"}}
    engine = {"name": "e", "image": ENGINES["jetstream"].image, "args": arguments, "resources": chips}
    selector = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    stub_type, settings = stub(container(tmp_path, engine, nodeSelector=selector))
    _, front = stub(container(tmp_path, {"name": "h", "image": versions.JETSTREAM_HTTP_IMAGE}))
    assert (stub_type, settings["slots"], settings["chips"]["memory"]) == ("maxengine", 32, 32 * 2**30)
    assert front["engine_port"] == settings["port"] == PORTS[9000]
    assert settings["metrics_port"] == PORTS[9100]


def test_a_port_is_returned_only_once_even_without_a_listener() -> None:
    ports = [processes.free_ports(1)[0] for _ in range(300)]
    assert len(set(ports)) == len(ports)


def test_no_link_in_the_shared_folder_of_certificates_creates_a_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may write into /tmp, where JobSet waits for a certificate."""
    awaited = tmp_path / "k8s-webhook-server" / "serving-certs" / "tls.crt"
    awaited.parent.mkdir(parents=True)
    awaited.symlink_to(tmp_path / "victim")
    monkeypatch.setattr(programs, "JOBSET_AWAITS", awaited)
    spec = {"name": "c", "image": versions.JOBSET_IMAGE, "args": ["--config=/etc/given.yaml"]}
    command(container(tmp_path, spec, {"/etc/given.yaml": "{}\n"}))
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("image", [versions.KUEUE_IMAGE, versions.JOBSET_IMAGE])
def test_a_manager_keeps_its_configuration_except_addresses_and_paths(tmp_path: Path, image: str) -> None:
    spec = {"name": "c", "image": image, "args": ["--zap-log-level=2", "--config=/etc/given.yaml"]}
    server = container(tmp_path, spec, {"/etc/given.yaml": "internalCertManagement: {enable: true}\n"})
    words = command(server)
    assert words[2:] == [f"--kubeconfig={server.kubeconfig}", "--zap-log-level=2"]
    content = adapted(words[1:2])
    assert content["internalCertManagement"] == {"enable": True}
    assert content["webhook"]["port"] == PORTS[9443]
    assert content["webhook"]["certDir"].startswith(str(server.sandbox.root))
    assert content["leaderElection"]["resourceNamespace"] == "llm"


def test_trainer_gets_certificates_from_the_folder_for_temporary_files(tmp_path: Path) -> None:
    """Its configuration has no field for the folder, and it decodes the file strictly."""
    file = "/controller_manager_config.yaml"
    spec = {"name": "c", "image": TRAINER.image, "args": [f"--config={file}"]}
    text = 'leaderElection: {leaderElect: true, resourceNamespace: ""}\n'
    content = adapted(command(container(tmp_path, spec, {file: text})))
    assert content["webhook"] == {"host": "127.0.0.1", "port": PORTS[9443]}
    assert content["statusServer"] == {"port": PORTS[10443]}
    assert content["leaderElection"]["resourceNamespace"] == "llm"


def test_kuberay_asks_ray_heads_through_the_proxy_of_pods(tmp_path: Path) -> None:
    arguments = ["--log-stdout-encoder", "json", "--use-kubernetes-proxy=false", "--feature-gates=A=true"]
    words = command(container(tmp_path, {"name": "ray", "image": KUBERAY.image, "args": arguments}))
    assert words[:3] == ["/usr/bin/env", "HTTP_PROXY=http://127.0.0.1:20000", "kuberay-operator"]
    assert "--leader-election-namespace=llm" in words
    assert words[-4:] == arguments


def test_the_adapter_queries_the_prometheus_of_its_url(tmp_path: Path) -> None:
    arguments = [PROMETHEUS, "--secure-port=6443", "--cert-dir=/tmp/cert", "--v=4"]
    spec = {"name": "c", "image": versions.PROMETHEUS_ADAPTER_IMAGE, "command": ["/adapter"], "args": arguments}
    words = command(container(tmp_path, spec))
    assert "--prometheus-url=http://127.0.0.1:30000/" in words
    assert sum(word.startswith(("--prometheus-url", "--secure-port", "--cert-dir")) for word in words) == 3
    assert words[-1] == "--v=4"


def test_an_endpoint_picker_keeps_its_arguments_and_moves_its_ports(tmp_path: Path) -> None:
    arguments = ["--pool-name", "gemma", "--grpc-port=9100", "--refresh-metrics-interval=1s"]
    picker = container(tmp_path, {"name": "epp", "image": EPP, "args": arguments})
    words = command(picker)
    moved = {"grpc-port": PORTS[9100], "grpc-health-port": PORTS[9003], "metrics-port": PORTS[9090]}
    ports = [f"--{name}={port}" for name, port in moved.items()]
    variables = [f"KUBECONFIG={picker.kubeconfig}", "HTTP_PROXY=http://127.0.0.1:20000"]
    assert words == ["/usr/bin/env", *variables, "epp-v1.5.0-proxied", *arguments, *ports]
    del picker.spec["args"][3]
    assert command(picker)[-1] == "--refresh-metrics-interval=200ms"


PROMETHEUS = "--prometheus-url=http://prometheus.llm.svc:9090/"
KUBECONFIG = ["--kubeconfig=/cfg/evil", "-kubeconfig=/cfg/evil", "--lister-kubeconfig", "/cfg/evil", "--cert-dir=/x"]
MANAGERS = [versions.KUEUE_IMAGE, versions.JOBSET_IMAGE, TRAINER.image, KUBERAY.image]


@pytest.mark.parametrize("image", [*MANAGERS, versions.PROMETHEUS_ADAPTER_IMAGE, EPP])
def test_a_controller_gets_no_kubeconfig_of_a_pod_whose_plugin_it_would_run(tmp_path: Path, image: str) -> None:
    arguments = [PROMETHEUS, *KUBECONFIG, "--config=/cfg/config"]
    words = command(container(tmp_path, {"name": "evil", "image": image, "args": arguments}, {"/cfg/config": "{}"}))
    assert not [word for word in words if "/cfg/evil" in word or word in KUBECONFIG]


def test_a_controller_reads_no_configuration_outside_its_volumes(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("{}")
    arguments = [PROMETHEUS, f"--config={tmp_path}/private"]
    adapter = container(tmp_path, {"name": "a", "image": versions.PROMETHEUS_ADAPTER_IMAGE, "args": arguments})
    assert not [word for word in command(adapter) if "private" in word]
    with pytest.raises(Outside, match="is in no volume of the pod"):
        command(container(tmp_path, {"name": "k", "image": versions.KUEUE_IMAGE, "args": arguments}))


def test_kueue_runs_no_credential_plugin_of_its_configuration(tmp_path: Path) -> None:
    provider = {"name": "p", "execConfig": {"command": "/bin/sh", "args": ["-c", "id"]}}
    settings = {"multiKueue": {"clusterProfile": {"credentialsProviders": [provider]}}, "namespace": "k"}
    spec = {"name": "c", "image": f"{versions.KUEUE_IMAGE}:v{versions.KUEUE_VERSION}", "args": ["--config=/k"]}
    content = adapted(command(container(tmp_path, spec, {"/k": yaml.safe_dump(settings)})))
    assert "multiKueue" not in content
    assert content["featureGates"]["MultiKueue"] is False


@pytest.mark.parametrize("tag", ["x/../../evil", "../evil", "/evil"])
def test_a_tag_names_no_program_of_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    spec = {"name": "c", "image": f"{versions.KUEUE_IMAGE}:{tag}", "args": ["--config=/k"]}
    assert command(container(tmp_path, spec, {"/k": "{}"}))[0] == "kueue"


def output(spec: Object, script: str, variable: str, awaited: str, api: Any = None) -> str:
    """What a container prints that runs a script and may have one variable of its pod, up to an awaited text."""

    async def shows(_: Container) -> list[str]:
        return ["/bin/sh", "-c", script]

    async def run() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api or Mock()), base_url="http://c") as client:
            program = Program("i", shows, (variable,))
            process = ContainerProcess(Folder("c"), client, Mock(), pod(spec), spec, program, {}, Mock())
            log = Folder("c").log / "llm_p_a.log"
            while not (log.exists() and awaited in log.read_text()):
                await asyncio.sleep(0.05)
            process.stop()
            while processes.of(Folder("c").path):
                await asyncio.sleep(0.05)
            return log.read_text()

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_a_process_gets_no_variable_that_changes_what_it_runs() -> None:
    hostile = ("LD_PRELOAD", "PATH", "KUBECONFIG", "PYTHONPATH", "GODEBUG", "GKE_AI_CLUSTER", "BASH_ENV")
    spec = {"name": "a", "env": [{"name": name, "value": "canary"} for name in (*hostile, "NAMED")]}
    printed = output(spec, "/usr/bin/env; echo end; exec /bin/sleep 600", "NAMED", "end")
    assert [line for line in printed.splitlines() if "canary" in line] == ["NAMED=canary"]


def test_a_container_starts_although_the_api_server_fails_at_first() -> None:
    secret = httpx.Response(200, json={"data": {"key": base64.b64encode(b"value").decode()}})
    answers = Mock(side_effect=[httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(404), secret])

    def api(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/namespaces/llm/secrets/s"
        response: httpx.Response = answers()
        return response

    reference = {"secretKeyRef": {"name": "s", "key": "key"}}
    spec = {"name": "a", "env": [{"name": "TOKEN", "valueFrom": reference}]}
    output(spec, 'echo "$TOKEN"; exec sleep 600', "TOKEN", "value", api)


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
FROM_POD = {"fromPod": [{"from": "app", "to": "model"}]}
OWN = {"pod": "p", "node": "n1"}


@pytest.mark.parametrize(
    ("port", "scraped", "labels", "own"),
    [
        ("metrics", pod(SERVER), WANTED, OWN | {"instance": "p:metrics", "container": "server"}),
        (9100, pod(SERVER), WANTED, OWN | {"instance": "p:9100"}),
        (9100, pod(SERVER, owner="DaemonSet"), {"metadata": []}, {"instance": "n1:9100"}),
        (9100, pod(SERVER), FROM_POD | {"metadata": []}, {"instance": "p:9100", "model": "a"}),
    ],
    ids=["a port by name", "a port by number", "a DaemonSet", "labels of the pod"],
)
def test_a_target_has_the_labels_of_its_pod_and_port(
    port: object, scraped: Object, labels: Object, own: Object
) -> None:
    expected = [{"targets": ["127.0.0.1:21000"], "labels": LABELS | own}]
    assert targets({"port": port}, scraped, targetLabels=labels) == expected


@pytest.mark.parametrize(
    ("port", "scraped"),
    [
        ("metrics", pod(SERVER, app="b")),  # not selected
        ("metrics", pod(SERVER, uid="u2")),  # no local process
        ("other", pod(SERVER)),
        (9999, pod(SERVER)),
        (9100, pod(SERVER, namespace="other")),
    ],
)
def test_pods_that_are_not_selected_or_not_served_are_no_targets(port: object, scraped: Object) -> None:
    assert targets({"port": port}, scraped) == []


def test_an_endpoint_is_scraped_with_its_settings_and_the_credential_of_its_authorization() -> None:
    rule = {"action": "drop", "sourceLabels": ["id"], "regex": "x"}
    endpoint: Object = {"port": 9100, "path": "/", "interval": "15s", "timeout": "5s", "metricRelabeling": [rule]}
    (job,) = scraping.configuration(CLUSTER, [monitoring(endpoint)], [], {})["scrape_configs"]
    assert job == {
        "job_name": "PodMonitoring/llm/m/9100",
        "scrape_interval": "15s",
        "scrape_timeout": "5s",
        "metrics_path": "/",
        "metric_relabel_configs": [{"action": "drop", "source_labels": ["id"], "regex": "x"}],
        "static_configs": [],
    }
    secret = {"name": "reader", "key": "token"}
    endpoint |= {"scheme": "https", "authorization": {"credentials": {"secret": secret}}}
    protected = monitoring(endpoint | {"tls": {"insecureSkipVerify": True}})
    (job,) = scraping.configuration(CLUSTER, [protected], [], {})["scrape_configs"]
    file = scraping.credential("llm", **secret)
    assert job["authorization"] == {"type": "Bearer", "credentials_file": file}
    assert job["tls_config"] == {"insecure_skip_verify": True}
    assert scraping.wanted_secrets([protected, monitoring({"port": 1})]) == {("llm", "reader", "token")}
