"""The programs that run as local processes in place of containers: their images and arguments.

Paths move into the container's private folder and ports move to free local ports. Everything else is as in the pod.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from catalog.engines import ENGINES, Engine
from catalog.nodes import GKE_TPU_ACCELERATOR
from catalog.tpus import GOOGLE_TPU, VERSIONS
from emulator import stubs
from emulator.cluster import processes
from emulator.cluster.endpoint_picker import endpoint_picker
from emulator.cluster.folder import Folder
from emulator.folders import inside
from emulator.program import has_name
from emulator.stubs.node import CHIPS_FILE

Object = dict[str, Any]
# How often Prometheus checks whether its configuration changed.
RELOAD_SECONDS = 1
GIB = 2**30


@dataclass
class Sandbox:
    """The local file system and network of one container.

    `ports` maps container ports to local ports. The containers of a pod share it, as they share a network.
    """

    root: Path
    ports: dict[int, int] = field(default_factory=dict)
    mounts: list[str] = field(default_factory=list)

    def inside(self, path: str) -> Path:
        """The path on this machine for a path of the container. Raises Outside for a path that leads elsewhere."""
        return inside(self.root, path)

    def port(self, number: int) -> int:
        """The local port for a container port; the same at every call."""
        if number not in self.ports:
            self.ports[number] = processes.free_ports(1)[0]
        return self.ports[number]

    def address(self, text: str) -> str:
        """Moves a listening address (`:8443`) to its local port.

        `0` stays: it means not to listen.
        """
        port = text.rpartition(":")[2]
        return f"127.0.0.1:{self.port(int(port))}" if port.isdigit() and int(port) else text

    def rewrite(self, argument: str) -> str:
        """Replaces a mounted path in an argument, if any, by its path on this machine."""
        flag, equals, value = argument.rpartition("=")
        for mount in self.mounts:
            if value == mount or value.startswith(mount.rstrip("/") + "/"):
                return f"{flag}{equals}{self.inside(value)}"
        return argument


@dataclass(frozen=True)
class Container:
    """A container of a running pod.

    `forward` returns a local port that leads to a `HOST:PORT` of the cluster, once something answers there. `secrets`
    has the values of the variables that come from Secrets.
    """

    folder: Folder
    pod: Object
    spec: Object
    sandbox: Sandbox
    forward: Callable[[str], Awaitable[int]]
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def tag(self) -> str:
        """The tag of the container's image."""
        return str(self.spec["image"]).partition("@")[0].rpartition(":")[2]

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig for the pod's ServiceAccount, if the program has one."""
        return self.sandbox.root / "kubeconfig"

    def arguments(self) -> list[str]:
        """The arguments after the program's name, with local paths."""
        words = [*self.spec.get("command", [])[1:], *self.spec.get("args", [])]
        return [self.sandbox.rewrite(word) for word in words]

    def argument(self, *names: str) -> str | None:
        """The value of an argument `NAME=VALUE` or `NAME VALUE`."""
        words = iter(self.arguments())
        for word in words:
            name, equals, value = word.partition("=")
            if name in names:
                return value if equals else next(words, None)
        return None

    def without(self, *names: str) -> list[str]:
        """The arguments without those of these names, which must be written as `NAME=VALUE`."""
        return [argument for argument in self.arguments() if argument.partition("=")[0] not in names]

    def variables(self) -> dict[str, str]:
        """The environment variables that the pod itself sets."""
        metadata, status = self.pod["metadata"], self.pod["status"]
        fields = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": self.pod["spec"]["nodeName"],
            "spec.serviceAccountName": self.pod["spec"].get("serviceAccountName", "default"),
            "status.podIP": status.get("podIP", ""),
        }
        result = {}
        for variable in self.spec.get("env", []):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            result[variable["name"]] = fields.get(path, "") if path else str(variable.get("value", ""))
        return result | self.secrets


Command = Callable[[Container], Coroutine[Any, Any, list[str]]]


@dataclass(frozen=True)
class Program:
    """A program that can run as a local process.

    Attributes:
        image: Name of its images without tag or digest. With `*` at the end, a prefix of the name.
        command: Returns the command for a container, once its files exist.
        managed: Whether it calls the API server. It then gets credentials and the files of its volumes.
    """

    image: str
    command: Command
    managed: bool = False

    def runs(self, image: str) -> bool:
        """Whether an image contains this program, with any tag or digest."""
        return has_name(image, self.image)


def known(image: str) -> Program | None:
    """The program in an image, or None if the emulator doesn't run it."""
    return next((program for program in PROGRAMS if program.runs(image)), None)


# ---------------------------------------------------------------------------------------------------------- controllers
def _manager(container: Container) -> Object:
    """The configuration of a controller-runtime manager, with the ports and paths of its sandbox."""
    sandbox = container.sandbox
    settings: Object = yaml.safe_load(Path(container.argument("--config") or "").read_text())
    webhook = settings.setdefault("webhook", {})
    webhook["port"] = sandbox.port(webhook.get("port") or 9443)
    webhook["host"] = "127.0.0.1"
    webhook["certDir"] = str(sandbox.inside(webhook.get("certDir") or "/tmp/k8s-webhook-server/serving-certs"))
    health = settings.setdefault("health", {})
    health["healthProbeBindAddress"] = sandbox.address(health.get("healthProbeBindAddress") or ":8081")
    metrics = settings.setdefault("metrics", {})
    metrics["bindAddress"] = sandbox.address(metrics.get("bindAddress") or ":8443")
    # In a pod the manager reads it from the ServiceAccount's folder.
    settings.setdefault("leaderElection", {}).setdefault("resourceNamespace", container.namespace)
    return settings


def _manage(container: Container, program: str, settings: Object) -> list[str]:
    file = container.sandbox.root / "manager.yaml"
    file.write_text(yaml.safe_dump(settings))
    own = [f"--config={file}", f"--kubeconfig={container.kubeconfig}"]
    # PATH may have another version beside the pinned one, named after its tag.
    with_tag = f"{program}-{container.tag}"
    return [processes.tool(with_tag if shutil.which(with_tag) else program), *own, *container.without("--config")]


async def _kueue(container: Container) -> list[str]:
    """https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/"""
    settings = _manager(container)
    if container.tag.startswith("v0.16."):
        # In v0.16 the visibility API needs a pod's environment for authorization, and its address can't be set.
        settings.setdefault("featureGates", {})["VisibilityOnDemand"] = False
    else:
        visibility = settings.setdefault("visibilityServer", {})
        visibility["bindPort"] = container.sandbox.port(visibility.get("bindPort") or 8082)
        visibility["bindAddress"] = "127.0.0.1"
    settings.setdefault("namespace", container.namespace)
    return _manage(container, "kueue", settings)


# JobSet waits for this file, although its webhook server reads certificates from the configured folder.
JOBSET_AWAITS = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")


async def _jobset(container: Container) -> list[str]:
    """https://jobset.sigs.k8s.io/docs/reference/

    JobSet reads its namespace from the ServiceAccount's folder, which doesn't exist here. It then uses `jobset-system`.
    """
    if not JOBSET_AWAITS.exists():  # a file of another user works too
        JOBSET_AWAITS.parent.mkdir(parents=True, exist_ok=True)
        JOBSET_AWAITS.touch()
    return _manage(container, "jobset", _manager(container))


# -------------------------------------------------------------------------------------------------------------- metrics
async def _prometheus(container: Container) -> list[str]:
    """Prometheus in place of the frontend: it scrapes and answers queries.

    On Google Cloud, Managed Service for Prometheus scrapes and the frontend forwards queries to it.

    https://cloud.google.com/stackdriver/docs/managed-prometheus/query-api-ui
    """
    address = container.sandbox.address(container.argument("--web.listen-address") or ":9090")
    return [
        processes.tool("prometheus"),
        f"--config.file={container.folder.scraping}",
        "--enable-feature=auto-reload-config",
        f"--config.auto-reload-interval={RELOAD_SECONDS}s",
        f"--storage.tsdb.path={container.sandbox.root / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]


async def _prometheus_adapter(container: Container) -> list[str]:
    """https://github.com/kubernetes-sigs/prometheus-adapter

    The adapter lists metrics at its start and then once per interval, so it starts only when its Prometheus answers.
    """
    scheme, _, rest = (container.argument("--prometheus-url") or "").partition("://")
    target, slash, path = rest.partition("/")
    prometheus = await container.forward(target if ":" in target else f"{target}:80")
    ca = container.folder.pki / "ca.crt"
    moved = {
        "--prometheus-url": f"{scheme}://127.0.0.1:{prometheus}{slash}{path}",
        "--secure-port": container.sandbox.port(int(container.argument("--secure-port") or 6443)),
        "--bind-address": "127.0.0.1",
        "--cert-dir": container.sandbox.inside("/certificate"),
        # In a pod it reads these from the ServiceAccount's folder and kube-system/extension-apiserver-authentication.
        "--lister-kubeconfig": container.kubeconfig,
        "--authentication-kubeconfig": container.kubeconfig,
        "--authorization-kubeconfig": container.kubeconfig,
        "--authentication-skip-lookup": "true",
        "--client-ca-file": ca,
        "--requestheader-client-ca-file": ca,
        "--requestheader-username-headers": "X-Remote-User",
        "--requestheader-group-headers": "X-Remote-Group",
        "--requestheader-extra-headers-prefix": "X-Remote-Extra-",
    }
    own = [f"{flag}={value}" for flag, value in moved.items()]
    return [processes.tool("prometheus-adapter"), *own, *container.without(*moved)]


# ---------------------------------------------------------------------------------------------------------------- stubs
def _listening(container: Container, port: str | None, default: int) -> int:
    declared = next((port["containerPort"] for port in container.spec.get("ports", [])), default)
    return container.sandbox.port(int(port) if port and port.isdigit() else declared)


async def _tgi(container: Container) -> list[str]:
    """https://huggingface.co/docs/text-generation-inference/reference/launcher#port

    AIP_HTTP_PORT is a variable of Google's own image.
    """
    variables = container.variables()
    port = container.argument("--port", "-p") or variables.get("PORT") or variables.get("AIP_HTTP_PORT")
    slots = container.argument("--max-batch-size") or variables.get("MAX_BATCH_SIZE")
    model = container.argument("--model-id") or variables.get("MODEL_ID")
    load = {"slots": int(slots or MAX_SEQUENCES), "models": [model] if model else []}
    load["series"] = dict(ENGINES["tgi"].series)
    return stubs.command("tgi", {"port": _listening(container, port, 80), **load})


def _server(engine: Engine) -> Command:
    """The command of the stub for an engine whose API is one of those that the catalog describes."""

    async def command(container: Container) -> list[str]:
        name = engine.names.get("port", "")
        port = container.argument(name) or container.variables().get(name)
        paths = {"health_path": engine.health_path, "request_path": engine.request_path, "form": engine.form}
        load = {"slots": int(container.argument("--max-num-seqs") or MAX_SEQUENCES), "models": _models(container)}
        metrics = {"metrics_path": engine.metrics_path, "series": dict(engine.series)}
        paths["api_key_variable"] = engine.api_key_variable
        return stubs.command("server", {"port": _listening(container, port, SERVER_PORT), **paths, **load, **metrics})

    return command


def _models(container: Container) -> list[str]:
    """The name of the model in `vllm serve MODEL` or `--model`. `--served-model-name` replaces it."""
    words = [*container.spec.get("command", []), *container.spec.get("args", [])]
    positional = words[words.index("serve") + 1 :][:1] if "serve" in words else []
    named = container.argument("--served-model-name") or container.argument("--model")
    return [named] if named else [word for word in positional if not word.startswith("-")]


# Requests that an engine runs at once, unless its container sets another number. vLLM's default depends on the device:
# https://docs.vllm.ai/en/stable/cli/serve.html#-max-num-seqs
MAX_SEQUENCES = 256
# Port of a server whose pod names none.
SERVER_PORT = 8000
# Default port of MaxText's server. The HTTP front in the same pod connects to it.
MAXENGINE_PORT = 9000


async def _maxengine(container: Container) -> list[str]:
    """https://github.com/AI-Hypercomputer/maxtext, maxengine_server.py.

    Its settings have the form `name=value`.
    """
    resources = container.spec.get("resources", {})
    chips = int((resources.get("limits") or resources.get("requests") or {}).get(GOOGLE_TPU, 0))
    accelerator = container.pod["spec"].get("nodeSelector", {}).get(GKE_TPU_ACCELERATOR)
    # A pod without an accelerator in its selector (a ComputeClass has it) counts as running on the smallest chip.
    memory = next((v.memory_gib for v in VERSIONS.values() if v.accelerator == accelerator), 16)
    metrics = container.argument("prometheus_port")
    settings = {
        "port": container.sandbox.port(int(container.argument("port") or MAXENGINE_PORT)),
        "metrics_port": container.sandbox.port(int(metrics)) if metrics and metrics != "0" else None,
        "slots": max(1, int(float(container.argument("per_device_batch_size") or 1) * chips)),
        "id": container.pod["metadata"]["name"],
        # The device plugin's stub reads the chips' used memory from this file.
        "chips_file": str(container.sandbox.root / CHIPS_FILE),
        "chips": {
            "node": container.pod["spec"]["nodeName"],
            "count": chips,
            "memory": memory * GIB,
            "labels": {
                "container": container.spec["name"],
                "namespace": container.namespace,
                "pod": container.pod["metadata"]["name"],
            },
        },
    }
    return stubs.command("maxengine", settings)


async def _jetstream_http(container: Container) -> list[str]:
    port = container.sandbox.port(int(container.argument("--port") or 8000))
    return stubs.command("jetstream_http", {"port": port, "engine_port": container.sandbox.port(MAXENGINE_PORT)})


async def _device_plugin(container: Container) -> list[str]:
    port = _listening(container, None, 2112)
    sandboxes, node = str(container.folder.sandboxes), container.pod["spec"]["nodeName"]
    return stubs.command("device_plugin", {"port": port, "sandboxes": sandboxes, "node": node})


async def _stackdriver_adapter(container: Container) -> list[str]:
    """A stub, because the adapter needs Cloud Monitoring.

    Without it, the aggregated API would not answer, and no namespace could be deleted (kubernetes-sigs/kueue#3943).
    """
    pki = container.folder.pki
    certificate = {"certificate": str(pki / "admin.crt"), "key": str(pki / "admin.key")}
    return stubs.command("metrics_api", {"port": container.sandbox.port(443), **certificate})


PROGRAMS = (
    Program("registry.k8s.io/kueue/kueue", _kueue, managed=True),
    Program("registry.k8s.io/jobset/jobset", _jobset, managed=True),
    Program("gke.gcr.io/prometheus-engine/frontend", _prometheus),
    Program("registry.k8s.io/prometheus-adapter/prometheus-adapter", _prometheus_adapter, managed=True),
    Program("registry.k8s.io/gateway-api-inference-extension/epp", endpoint_picker, managed=True),
    Program("gcr.io/gke-release/custom-metrics-stackdriver-adapter", _stackdriver_adapter),
    Program("ghcr.io/huggingface/text-generation-inference", _tgi),
    Program("us-docker.pkg.dev/deeplearning-platform-release/gcr.io/huggingface-text-generation-inference*", _tgi),
    Program("us-docker.pkg.dev/cloud-tpu-images/inference/maxengine-server", _maxengine),
    Program("us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http", _jetstream_http),
    Program("gke.gcr.io/tpu-device-plugin", _device_plugin),
    # Last, because JetStream and TGI have further APIs.
    *(Program(engine.image_name, _server(engine)) for engine in ENGINES.values()),
)
