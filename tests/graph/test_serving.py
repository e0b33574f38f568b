"""The resources of every engine's servers, of compute classes and of the default namespace."""

from functools import partial
from typing import Any, get_args

import pytest
import yaml

from gke_ai.catalog.engines.engine import CURRENT, ENGINES
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.components import JetStreamServer
from gke_ai.components.base import arguments_of
from gke_ai.components.serving.server import ModelServer, container_of
from gke_ai.settings import load
from gke_ai.settings.model import Tgi, Vllm
from gke_ai.settings.rules.warnings import legacy_engines
from tests.support.mistakes import base
from tests.support.recorder import PROJECT, ROOT, TOKEN, Record, shared_record, strings

good = partial(base, "serving")

SERVER: dict[str, Any] = {"name": "s", "namespace": "llm", "model": "google/gemma-3-4b-it"}
TPU = {"tpu": {"version": "v6e", "topology": "2x4"}}
JETSTREAM: dict[str, Any] = {"model": "gemma-7b", "checkpoint": "gs://models/m", **TPU}


def engine_of(component: Any) -> str:
    """The only value of the key `engine` in the component's section."""
    section: Any = arguments_of(component)
    (engine,) = get_args(section.model_fields["engine"].annotation)
    return str(engine)


SERVERS: dict[str, tuple[Any, dict[str, Any]]] = {
    engine_of(component): (
        component,
        {**SERVER, "engine": engine_of(component)}
        | (TPU if ENGINES[engine_of(component)].accelerator == GOOGLE_TPU else {"accelerator": "nvidia-h100-80gb"})
        | (JETSTREAM if component is JetStreamServer else {"token_secret": {}}),
    )
    for component in ModelServer.__subclasses__()
}
every_engine = pytest.mark.parametrize("engine", SERVERS)
both = pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])


@pytest.fixture
def serve(build: Any) -> Any:
    """Build only the server of an engine."""

    def run(engine: str, **more: Any) -> Record:
        component, values = SERVERS[engine]
        return build(component, values, **more)  # type: ignore[no-any-return]

    return run


def pod(built: Record) -> dict[str, Any]:
    pod_spec: dict[str, Any] = built.one("Deployment").inputs["spec"]["template"]["spec"]
    return pod_spec


def test_every_engine_has_a_server_and_a_section() -> None:
    assert ENGINES.keys() == SERVERS.keys()


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_engine_builds_its_request_and_reads_its_answer(engine: Any) -> None:
    body = engine.body("m", "Hello", 7)
    assert (body["prompt"], body["max_tokens"]) == ("Hello", 7)
    assert engine.text({"choices": [{"text": "Hi"}]} if "model" in body else {"response": "Hi"}) == "Hi"
    without: list[dict[str, Any]] = [{}, {"choices": []}, {"response": None}, {"choices": [{"text": 1}]}]
    for nothing in without:
        with pytest.raises((KeyError, IndexError, TypeError)):
            engine.text(nothing)


@every_engine
def test_every_server_has_the_shared_parts(engine: str, serve: Any) -> None:
    built = serve(engine, pod_monitoring=True, queue="lq", priority_class="high", service_account="reader")
    deployment = built.one("Deployment")
    assert deployment.inputs["spec"]["replicas"] == 1
    assert deployment.inputs["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lq"
    assert deployment.hooked
    assert built.one("Service").inputs["spec"]["selector"] == {"app": "s"}
    assert built.one("PodDisruptionBudget").inputs["spec"]["selector"] == {"matchLabels": {"app": "s"}}
    assert (pod(built)["priorityClassName"], pod(built)["serviceAccountName"]) == ("high", "reader")


@every_engine
def test_metrics_are_scraped_at_a_port_by_name(engine: str, serve: Any) -> None:
    built = serve(engine, pod_monitoring=True)
    (endpoint,) = built.one("PodMonitoring").inputs["spec"]["endpoints"]
    ports = [port for container in pod(built)["containers"] for port in container["ports"]]
    named = {port.get("name"): port["containerPort"] for port in ports}
    assert named[endpoint["port"]] == (ENGINES[engine].metrics_port or 8000)
    assert endpoint["path"] == ENGINES[engine].metrics_path


@every_engine
def test_probes_are_optional(engine: str, serve: Any) -> None:
    probes = {"startupProbe", "readinessProbe", "livenessProbe"}
    model = pod(serve(engine))["containers"][0]
    assert probes <= model.keys()
    assert not any(probes & container.keys() for container in pod(serve(engine, probes=False))["containers"])


@every_engine
def test_autoscaling_changes_no_input_of_a_server_and_owns_its_replicas(engine: str, serve: Any) -> None:
    scaled, plain = (serve(engine, replicas=3, autoscaled=autoscaled).one("Deployment") for autoscaled in (True, False))
    assert scaled.inputs["spec"]["replicas"] == 3
    assert (scaled.ignored, plain.ignored) == (("spec.replicas",), ())
    ports = scaled.inputs["spec"]["template"]["spec"]["containers"][0].pop("ports", None)
    assert ports or engine == "jetstream", "of the metrics by which it is scaled"
    plain.inputs["spec"]["template"]["spec"]["containers"][0].pop("ports", None)
    assert scaled.inputs == plain.inputs


@every_engine
def test_scratch_volume_is_created_and_deleted_with_the_pod(engine: str, serve: Any) -> None:
    scratch = {"mount_path": "/data", "size": "200Gi", "storage_class": "hyperdisk-balanced"}
    spec = pod(serve(engine, scratch=scratch))
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "ephemeral-volume")
    requested = {"resources": {"requests": {"storage": "200Gi"}}, "storageClassName": "hyperdisk-balanced"}
    claim = {"metadata": {"labels": {"type": "ephemeral"}}, "spec": {"accessModes": ["ReadWriteOnce"], **requested}}
    assert volume["ephemeral"]["volumeClaimTemplate"] == claim
    assert {"name": "ephemeral-volume", "mountPath": "/data"} in spec["containers"][0]["volumeMounts"]
    assert not any("volumeMounts" in container for container in spec["containers"][1:])
    assert "ephemeral-volume" not in strings(pod(serve(engine)))


@every_engine
def test_terminating_pod_answers_for_the_drain_seconds(engine: str, serve: Any) -> None:
    spec = pod(serve(engine))
    assert all(container["lifecycle"] == {"preStop": {"sleep": {"seconds": 15}}} for container in spec["containers"])
    assert spec["terminationGracePeriodSeconds"] == 120
    at_once = pod(serve(engine, drain_seconds=0, termination_grace_period_seconds=30))
    assert not any("lifecycle" in container for container in at_once["containers"])
    assert at_once["terminationGracePeriodSeconds"] == 30


@every_engine
def test_every_engine_continues_the_server_of_every_other(engine: str, serve: Any) -> None:
    """Otherwise a change of the engine would delete the running Deployment: its parent's type is in its identity."""
    (server,) = (resource for resource in serve(engine).resources.values() if resource.type.endswith("Server"))
    others = {component.__name__ for component, _ in SERVERS.values()} - {SERVERS[engine][0].__name__}
    assert set(server.aliases) == {f"gke-ai:index:{name}" for name in others}


def test_default_engine_is_the_current_one_on_gpus() -> None:
    cluster = {"mode": "autopilot", "location": "us-central1"}
    server = {"name": "s", "model": "google/gemma-2-9b-it", "accelerator": "nvidia-l4", "gpus": 2}
    record = shared_record({"gke-ai:cluster": cluster, "gke-ai:serving": [server]})
    assert record.outputs["servers"][0]["engine"] == "vllm"
    assert {name for name, engine in ENGINES.items() if engine.legacy} == {"tgi", "jetstream"}
    assert not any(ENGINES[name].legacy for name in CURRENT.values())


@pytest.mark.parametrize(
    ("engine", "state", "successor"),
    [
        ("tgi", "Text Generation Inference is in maintenance mode since 2025-12-11", "vllm"),
        ("jetstream", "JetStream is archived since 2026-02-01", "vllm-tpu"),
    ],
)
def test_preview_warns_of_a_legacy_engine_with_its_date_and_successor(engine: str, state: str, successor: str) -> None:
    values = good()
    values["serving"] = [server for server in values["serving"] if server.get("engine") == engine]
    (warning,) = legacy_engines(load(values, PROJECT).settings.serving)
    assert warning.startswith("gke-ai:serving[0].engine: ")
    assert state in warning
    assert warning.endswith(f"Set engine: {successor}.")


def test_jetstream_is_the_server_of_the_source(serve: Any) -> None:
    names = {"name": "maxengine-server", "service": "jetstream-svc", "probes": False}
    checkpoint = "gs://bucket/final/unscanned/gemma_7b-it/0/checkpoints/0/items"
    labels = {"gke-tpu-topology": "2x4", "gke-tpu-accelerator": "tpu-v5-lite-podslice"}
    selector = {f"cloud.google.com/{key}": value for key, value in labels.items()}
    built = serve("jetstream", checkpoint=checkpoint, node_selector=selector, **names)
    assert pod(built) == yaml.safe_load((ROOT / "tests/data/expected/jetstream_server.yaml").read_text())
    service = built.one("Service")
    assert service.object_name == "jetstream-svc"
    ports = [(port["name"], port["port"], port["targetPort"]) for port in service.inputs["spec"]["ports"]]
    assert ports == [("http", 8000, 8000), ("grpc", 9000, 9000)]


def test_jetstream_settings_of_maxtext_can_be_changed_and_added(serve: Any) -> None:
    spec = pod(serve("jetstream", arguments={"ici_tensor_parallelism": "8", "quantization": "int8"}))
    stated = spec["containers"][0]["args"]
    assert [text for text in stated if "ici_tensor" in text] == ["ici_tensor_parallelism=8"]
    assert stated[-1] == "quantization=int8"


def program(preview: bool = False, **changes: Any) -> Record:
    return shared_record({f"gke-ai:{name}": value for name, value in {**good(), **changes}.items()}, preview)


@both
def test_servers_wait_for_their_class_or_their_pool(preview: bool) -> None:
    built = program(preview)
    expected = {"mixtral": {"ComputeClass cheap"}, "llama": {"ComputeClass cheap"}, "gemma": {"NodePool v5e"}}
    before = {name: built.waits_for(built.one("Deployment", name)) for name in expected}
    assert {name: {"ComputeClass cheap", "NodePool v5e"} & before[name] for name in before} == expected
    assert not any(item.startswith("Deployment") for item in before["mixtral"] | before["llama"])


def test_jetstream_gets_no_token() -> None:
    built = program(serving=good()["serving"][2:3], computeClasses=[])
    assert not built.all("Secret")
    assert not any(TOKEN in text for resource in built.resources.values() for text in strings(resource.inputs))


def test_outputs_name_each_server() -> None:
    servers = [(server["namespace"], server["service"], server["url"]) for server in program().outputs["servers"]]
    places = [("default", "mixtral"), ("llm", "llama"), ("llm", "gemma"), ("llm", "chat")]
    assert servers == [(place, name, f"http://{name}.{place}.svc.cluster.local:8000") for place, name in places]


@pytest.mark.parametrize(
    ("image", "keys", "expected"),
    [
        (None, {}, ["--shutdown-timeout=95"]),  # 120 s, less 15 s of preStop and 10 s to end
        (None, {"termination_grace_period_seconds": 600, "drain_seconds": 30}, ["--shutdown-timeout=560"]),
        ("vllm/vllm-openai:v0.18.0", {}, ["--shutdown-timeout=95"]),
        # Earlier releases refuse the flag. Of other images it is unknown.
        ("vllm/vllm-openai:v0.13.0", {}, []),
        ("registry.example/team/vllm:latest", {}, []),
        (None, {"termination_grace_period_seconds": 20}, []),
        (None, {"arguments": ["--shutdown-timeout=30"]}, []),
    ],
)
def test_vllm_lets_open_answers_finish_within_the_grace_period(image: Any, keys: Any, expected: list[str]) -> None:
    server = Vllm(name="s", model="google/gemma-2-2b-it", image=image, **keys)
    assert [flag for flag in server.command_line.flags if "shutdown" in flag] == expected


def test_tgi_has_no_such_flag() -> None:
    flags = Tgi(name="s", engine="tgi", model="google/gemma-2-2b-it").command_line.flags
    assert not [flag for flag in flags if "shutdown" in flag]


def test_a_container_mounts_shared_memory_only_with_its_volume() -> None:
    class Alone(Vllm):
        shares_memory = False

    section = {"engine": "vllm", "name": "chat", "model": "google/gemma-3-4b-it", "accelerator": "nvidia-l4"}
    containers: list[Any] = [container_of(kind.model_validate(section), 1, {}) for kind in (Vllm, Alone)]
    mounts = [[mount["name"] for mount in container["volume_mounts"]] for container in containers]
    assert mounts == [["dshm"], []]
