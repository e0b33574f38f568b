"""The programs that run as local processes in place of containers: which image is which, and with which arguments.

Paths move into the container's private folder, ports to free ones of this machine; the rest is as the pod says.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from catalog.nodes import GKE_TPU_ACCELERATOR
from catalog.tpus import GOOGLE_TPU, VERSIONS
from emulator.cluster import processes, stubs
from emulator.cluster.folder import Folder

Object = dict[str, Any]
# How often Prometheus looks whether its configuration has changed.
RELOAD_SECONDS = 1
GIB = 2**30


@dataclass
class Sandbox:
    """What one container sees in place of its image's file system and network.

    `ports` is container port → local port; the containers of a pod share one, as they share a network.
    """

    root: Path
    ports: dict[int, int] = field(default_factory=dict)
    mounts: list[str] = field(default_factory=list)

    def inside(self, path: str) -> Path:
        """Where a path of the container is on this machine."""
        return self.root / path.lstrip("/")

    def port(self, number: int) -> int:
        """The local port in place of a container's; the same one at every call."""
        if number not in self.ports:
            self.ports[number] = processes.free_ports(1)[0]
        return self.ports[number]

    def address(self, text: str) -> str:
        """A listening address (`:8443`) moved to its local port; `0` stays, it means not to listen."""
        port = text.rpartition(":")[2]
        return f"127.0.0.1:{self.port(int(port))}" if port.isdigit() and int(port) else text

    def rewrite(self, argument: str) -> str:
        """An argument with the mounted path in it, if any, moved to where it is on this machine."""
        flag, equals, value = argument.rpartition("=")
        for mount in self.mounts:
            if value == mount or value.startswith(mount.rstrip("/") + "/"):
                return f"{flag}{equals}{self.inside(value)}"
        return argument


@dataclass(frozen=True)
class Container:
    """A container of a running pod.

    `forward` gives a local port that leads to a `HOST:PORT` of the cluster, as soon as something answers there.
    """

    folder: Folder
    pod: Object
    spec: Object
    sandbox: Sandbox
    forward: Callable[[str], Awaitable[int]]

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def tag(self) -> str:
        """The tag of its image."""
        return str(self.spec["image"]).partition("@")[0].rpartition(":")[2]

    @property
    def kubeconfig(self) -> Path:
        """Where the credentials of the pod's ServiceAccount are, if the program has them."""
        return self.sandbox.root / "kubeconfig"

    def arguments(self) -> list[str]:
        """All after the program's name, paths moved."""
        words = [*self.spec.get("command", [])[1:], *self.spec.get("args", [])]
        return [self.sandbox.rewrite(word) for word in words]

    def argument(self, *names: str) -> str | None:
        """The value given as `NAME=VALUE` or `NAME VALUE`."""
        words = iter(self.arguments())
        for word in words:
            name, equals, value = word.partition("=")
            if name in names:
                return value if equals else next(words, None)
        return None

    def without(self, *names: str) -> list[str]:
        """The arguments but for those of these names, written `NAME=VALUE`."""
        return [argument for argument in self.arguments() if argument.partition("=")[0] not in names]

    def variables(self) -> dict[str, str]:
        """Its environment, as far as the pod itself says it."""
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
        return result


Command = Callable[[Container], Coroutine[Any, Any, list[str]]]


@dataclass(frozen=True)
class Program:
    """A program known to run as a local process.

    Attributes:
        image: How its images begin, without tag or digest; with `*` at the end, whatever follows.
        command: What to start for a container, once its files are laid out.
        managed: Whether it works with the API server: it gets credentials and the files of its volumes.
    """

    image: str
    command: Command
    managed: bool = False

    def runs(self, image: str) -> bool:
        """Whether an image is this program, whatever its tag or digest."""
        if self.image.endswith("*"):
            return image.startswith(self.image[:-1])
        return image == self.image or image.startswith((f"{self.image}:", f"{self.image}@"))


def known(image: str) -> Program | None:
    """The program that an image is."""
    return next((program for program in PROGRAMS if program.runs(image)), None)


# ---------------------------------------------------------------------------------------------------------- controllers
def _manager(container: Container) -> Object:
    """The configuration file of a manager made with controller-runtime, moved to where its sandbox lets it be."""
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
    # In a pod it comes from the ServiceAccount's folder.
    settings.setdefault("leaderElection", {}).setdefault("resourceNamespace", container.namespace)
    return settings


def _manage(container: Container, program: str, settings: Object) -> list[str]:
    file = container.sandbox.root / "manager.yaml"
    file.write_text(yaml.safe_dump(settings))
    own = [f"--config={file}", f"--kubeconfig={container.kubeconfig}"]
    # Beside the pinned version another one may be on PATH, named by its tag.
    of_tag = f"{program}-{container.tag}"
    return [processes.tool(of_tag if shutil.which(of_tag) else program), *own, *container.without("--config")]


async def _kueue(container: Container) -> list[str]:
    """https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/"""
    settings = _manager(container)
    if container.tag.startswith("v0.16."):
        # There its visibility API asks the environment of a pod who may ask it, and listens where it will.
        settings.setdefault("featureGates", {})["VisibilityOnDemand"] = False
    else:
        visibility = settings.setdefault("visibilityServer", {})
        visibility["bindPort"] = container.sandbox.port(visibility.get("bindPort") or 8082)
        visibility["bindAddress"] = "127.0.0.1"
    settings.setdefault("namespace", container.namespace)
    return _manage(container, "kueue", settings)


# JobSet waits until this is there, although its webhook server reads certificates where its configuration says.
JOBSET_AWAITS = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")


async def _jobset(container: Container) -> list[str]:
    """https://jobset.sigs.k8s.io/docs/reference/

    Its namespace it reads from the ServiceAccount's folder, which is not here: it takes `jobset-system`.
    """
    if not JOBSET_AWAITS.exists():  # else it may be another user's, and will do
        JOBSET_AWAITS.parent.mkdir(parents=True, exist_ok=True)
        JOBSET_AWAITS.touch()
    return _manage(container, "jobset", _manager(container))


# -------------------------------------------------------------------------------------------------------------- metrics
async def _prometheus(container: Container) -> list[str]:
    """The frontend answers queries for Managed Service for Prometheus, which scrapes; here one Prometheus does both.

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

    Its list of metrics is made at its start and then once an interval: so it starts when its Prometheus answers.
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
        # In a pod it takes these from the ServiceAccount's folder and kube-system/extension-apiserver-authentication.
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
def _stub(kind: str, settings: Mapping[str, object]) -> list[str]:
    # Without site packages, it starts in a tenth of a second or less.
    return [sys.executable, "-I", "-S", stubs.__file__, kind, json.dumps(settings)]


def _listening(container: Container, stated: str | None, default: int) -> int:
    declared = next((port["containerPort"] for port in container.spec.get("ports", [])), default)
    return container.sandbox.port(int(stated) if stated and stated.isdigit() else declared)


async def _tgi(container: Container) -> list[str]:
    """https://huggingface.co/docs/text-generation-inference/reference/launcher#port; AIP_HTTP_PORT is Google's own
    image's."""
    variables = container.variables()
    stated = container.argument("--port", "-p") or variables.get("PORT") or variables.get("AIP_HTTP_PORT")
    return _stub("tgi", {"port": _listening(container, stated, 80)})


async def _vllm(container: Container) -> list[str]:
    """https://docs.vllm.ai/en/stable/cli/serve.html"""
    return _stub("vllm", {"port": _listening(container, container.argument("--port"), 8000)})


# Where MaxText's server listens, unless told otherwise, and where its HTTP front in the same pod looks for it.
MAXENGINE_PORT = 9000


async def _maxengine(container: Container) -> list[str]:
    """https://github.com/AI-Hypercomputer/maxtext, maxengine_server.py: its settings are `name=value`."""
    resources = container.spec.get("resources", {})
    chips = int((resources.get("limits") or resources.get("requests") or {}).get(GOOGLE_TPU, 0))
    accelerator = container.pod["spec"].get("nodeSelector", {}).get(GKE_TPU_ACCELERATOR)
    # A pod that names no accelerator (a ComputeClass does) counts as on the smallest.
    memory = next((v.memory_gib for v in VERSIONS.values() if v.accelerator == accelerator), 16)
    metrics = container.argument("prometheus_port")
    settings = {
        "port": container.sandbox.port(int(container.argument("port") or MAXENGINE_PORT)),
        "metrics_port": container.sandbox.port(int(metrics)) if metrics and metrics != "0" else None,
        "slots": max(1, int(float(container.argument("per_device_batch_size") or 1) * chips)),
        "id": container.pod["metadata"]["name"],
        # Where the device plugin's stub finds what the chips' memory holds.
        "chips_file": str(container.sandbox.root / stubs.CHIPS_FILE),
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
    return _stub("maxengine", settings)


async def _jetstream_http(container: Container) -> list[str]:
    port = container.sandbox.port(int(container.argument("--port") or 8000))
    return _stub("jetstream_http", {"port": port, "engine_port": container.sandbox.port(MAXENGINE_PORT)})


async def _device_plugin(container: Container) -> list[str]:
    port = _listening(container, None, 2112)
    sandboxes, node = str(container.folder.sandboxes), container.pod["spec"]["nodeName"]
    return _stub("device_plugin", {"port": port, "sandboxes": sandboxes, "node": node})


async def _stackdriver_adapter(container: Container) -> list[str]:
    """It asks Cloud Monitoring, so it can't run here; but an aggregated API without an answer would keep every
    namespace from being deleted (kubernetes-sigs/kueue#3943)."""
    pki = container.folder.pki
    certificate = {"certificate": str(pki / "admin.crt"), "key": str(pki / "admin.key")}
    return _stub("metrics_api", {"port": container.sandbox.port(443), **certificate})


PROGRAMS = (
    Program("registry.k8s.io/kueue/kueue", _kueue, managed=True),
    Program("registry.k8s.io/jobset/jobset", _jobset, managed=True),
    Program("gke.gcr.io/prometheus-engine/frontend", _prometheus),
    Program("registry.k8s.io/prometheus-adapter/prometheus-adapter", _prometheus_adapter, managed=True),
    Program("gcr.io/gke-release/custom-metrics-stackdriver-adapter", _stackdriver_adapter),
    Program("ghcr.io/huggingface/text-generation-inference", _tgi),
    Program("us-docker.pkg.dev/deeplearning-platform-release/gcr.io/huggingface-text-generation-inference*", _tgi),
    Program("vllm/vllm-openai", _vllm),
    Program("us-docker.pkg.dev/cloud-tpu-images/inference/maxengine-server", _maxengine),
    Program("us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http", _jetstream_http),
    Program("gke.gcr.io/tpu-device-plugin", _device_plugin),
)
