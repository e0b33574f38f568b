"""The programs that run as local processes in place of containers: their images and arguments.

Paths move into the container's private folder and ports move to free local ports. Of the arguments and variables, a
program gets those that are known to be harmless: whoever writes the pod could otherwise let it run another program.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from emulator import stubs
from emulator.cloud.program import has_name
from emulator.machine import processes
from emulator.machine.folders import Outside
from emulator.pods.endpoint_picker import endpoint_picker, model_router
from emulator.pods.sandbox import Container
from emulator.stubs.load import TOKEN_SECONDS_VARIABLE
from emulator.stubs.node import CHIPS_FILE
from gke_ai.catalog.engines.engine import ENGINES, Engine
from gke_ai.catalog.kueue.configuration import WITHOUT_VISIBILITY
from gke_ai.catalog.kueue.operators import KUBERAY, TRAINER
from gke_ai.catalog.machines.tpus import GOOGLE_TPU, VERSIONS
from gke_ai.catalog.nodes.shape import GKE_TPU_ACCELERATOR
from gke_ai.kube.pods import container_requests

Object = dict[str, Any]
STUB_VARIABLES = (TOKEN_SECONDS_VARIABLE,)
# How often Prometheus checks whether its configuration changed.
RELOAD_SECONDS = 1
GIB = 2**30


Command = Callable[[Container], Coroutine[Any, Any, list[str]]]


@dataclass(frozen=True)
class Program:
    """A program that can run as a local process.

    Attributes:
        image: Name of its images without tag or digest. With `*` at the end, a prefix of the name.
        command: Returns the command for a container, once its files exist.
        variables: Names of the container's variables that the process gets.
        managed: Whether it calls the API server. It then gets credentials and the files of its volumes.
    """

    image: str
    command: Command
    variables: tuple[str, ...] = ()
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
    file = Path(container.argument("--config") or "")
    if not file.is_relative_to(sandbox.root):
        raise Outside(f"the configuration {file} is in no volume of the pod")
    settings: Object = yaml.safe_load(file.read_text())
    webhook = settings.setdefault("webhook", {})
    webhook["port"] = sandbox.port(webhook.get("port") or 9443)
    webhook["host"] = "127.0.0.1"
    webhook["certDir"] = str(sandbox.inside(webhook.get("certDir") or "/tmp/k8s-webhook-server/serving-certs"))
    health = settings.setdefault("health", {})
    health["healthProbeBindAddress"] = sandbox.address(health.get("healthProbeBindAddress") or ":8081")
    metrics = settings.setdefault("metrics", {})
    metrics["bindAddress"] = sandbox.address(metrics.get("bindAddress") or ":8443")
    # In a pod the manager reads it from the ServiceAccount's folder.
    election = settings.setdefault("leaderElection", {})
    election["resourceNamespace"] = election.get("resourceNamespace") or container.namespace
    return settings


# https://github.com/kubernetes-sigs/controller-runtime/blob/main/pkg/log/zap/zap.go
_ZAP = ("--zap-devel", "--zap-encoder", "--zap-log-level", "--zap-stacktrace-level", "--zap-time-encoding")


def _manage(container: Container, program: str, settings: Object) -> list[str]:
    file = container.sandbox.root / "manager.yaml"
    file.write_text(yaml.safe_dump(settings))
    own = [f"--config={file}", f"--kubeconfig={container.kubeconfig}"]
    # PATH may have another version beside the pinned one, named after its tag.
    with_tag = f"{program}-{container.tag}"
    is_plain = re.fullmatch(r"[\w.-]+", with_tag)
    return [processes.tool(with_tag if is_plain and shutil.which(with_tag) else program), *own, *container.kept(*_ZAP)]


async def _kueue(container: Container) -> list[str]:
    """https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/"""
    settings = _manager(container)
    if container.tag.startswith(f"v{'.'.join(map(str, WITHOUT_VISIBILITY))}."):
        # There, the visibility API needs a pod's environment for authorization, and its address can't be set.
        settings.setdefault("featureGates", {})["VisibilityOnDemand"] = False
    else:
        visibility = settings.setdefault("visibilityServer", {})
        visibility["bindPort"] = container.sandbox.port(visibility.get("bindPort") or 8082)
        visibility["bindAddress"] = "127.0.0.1"
    settings.setdefault("namespace", container.namespace)
    # MultiKueue reads kubeconfigs of this machine, and runs the credential plugins that its settings name.
    settings.pop("multiKueue", None)
    settings.setdefault("featureGates", {})["MultiKueue"] = False
    return _manage(container, "kueue", settings)


# JobSet waits for this file, although its webhook server reads certificates from the configured folder.
JOBSET_AWAITS = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")


async def _jobset(container: Container) -> list[str]:
    """https://jobset.sigs.k8s.io/docs/reference/

    JobSet reads its namespace from the ServiceAccount's folder, which doesn't exist here. It then uses `jobset-system`.
    """
    _let_start()
    return _manage(container, "jobset", _manager(container))


def _let_start() -> None:
    with contextlib.suppress(FileExistsError):  # a file of another user works too
        JOBSET_AWAITS.parent.mkdir(parents=True, exist_ok=True)
        # Creates a new file or fails: everybody may write into /tmp, and put a link to one of our files here.
        os.close(os.open(JOBSET_AWAITS, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644))


async def _trainer(container: Container) -> list[str]:
    """https://github.com/kubeflow/trainer/tree/v2.2.1/pkg/apis/config

    Like JobSet, it waits for a fixed file. Without the ServiceAccount's folder, its namespace is `kubeflow-system`. Its
    webhook server reads certificates from the folder for temporary files, which is the sandbox's.
    """
    _let_start()
    settings = _manager(container)
    del settings["webhook"]["certDir"]
    status = settings.setdefault("statusServer", {})
    status["port"] = container.sandbox.port(status.get("port") or 10443)
    return _manage(container, "trainer-controller-manager", settings)


# https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/main.go
_KUBERAY = (
    *("--burst", "--enable-leader-election", "--enable-metrics", "--feature-gates", "--log-stdout-encoder", "--qps"),
    *("--reconcile-concurrency", "--use-kubernetes-proxy"),
)


async def _kuberay(container: Container) -> list[str]:
    """It asks Ray heads through the proxy of pods: a Service's name leads nowhere on this machine."""
    own = {
        "--kubeconfig": container.kubeconfig,
        "--leader-election-namespace": container.namespace,
        "--metrics-addr": container.sandbox.address(":8080"),
        "--health-probe-bind-address": container.sandbox.address(":8082"),
    }
    words = [f"{flag}={value}" for flag, value in own.items()]
    proxy = f"HTTP_PROXY=http://{container.folder.pod_proxy.read_text()}"
    return ["/usr/bin/env", proxy, processes.tool("kuberay-operator"), *words, *container.kept(*_KUBERAY)]


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


_ADAPTER = ("--config", "--metrics-max-age", "--metrics-relist-interval", "--v")


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
    return [processes.tool("prometheus-adapter"), *own, *container.kept(*_ADAPTER)]


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
        length = container.argument(engine.names.get("max_model_len", ""))
        limits = {
            "max_model_len": int(length) if length else None,
            "shutdown_seconds": int(container.argument(f"--{engine.shutdown_flag}") or 0),
            "adapters": _adapters(container),
        }
        own_port = _listening(container, port, SERVER_PORT)
        return stubs.command("server", {"port": own_port, **paths, **load, **metrics, **limits})

    return command


def _models(container: Container) -> list[str]:
    """The name of the model in `vllm serve MODEL` or `--model`. `--served-model-name` replaces it."""
    words = [*container.spec.get("command", []), *container.spec.get("args", [])]
    positional = words[words.index("serve") + 1 :][:1] if "serve" in words else []
    named = container.argument("--served-model-name") or container.argument("--model")
    return [named] if named else [word for word in positional if not word.startswith("-")]


def _adapters(container: Container) -> dict[str, str]:
    """Paths of LoRA adapters by name: `--lora-modules NAME=PATH …`."""
    words = [*container.spec.get("command", []), *container.spec.get("args", [])]
    following = words[words.index(LORA_MODULES) + 1 :] if LORA_MODULES in words else []
    modules = (word.partition("=") for word in takewhile(lambda word: not word.startswith("-"), following))
    return {name: path for name, _, path in modules}


LORA_MODULES = "--lora-modules"
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
    chips = int(container_requests(container.spec).get(GOOGLE_TPU, 0))
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


async def _ray(container: Container) -> list[str]:
    """Every container of Ray has it. Only that of the head is called."""
    file = container.folder.ray_elsewhere
    elsewhere = {"elsewhere": file.read_text()} if file.exists() else {}
    return stubs.command("ray_head", {"port": container.sandbox.port(8265), **elsewhere})


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
    Program(TRAINER.image, _trainer, managed=True),
    Program(KUBERAY.image, _kuberay, managed=True),
    Program("gke.gcr.io/prometheus-engine/frontend", _prometheus),
    Program("registry.k8s.io/prometheus-adapter/prometheus-adapter", _prometheus_adapter, managed=True),
    Program(
        "registry.k8s.io/gateway-api-inference-extension/epp", endpoint_picker, ("NAMESPACE", "POD_NAME"), managed=True
    ),
    Program("registry.k8s.io/gateway-api-inference-extension/bbr", model_router, ("NAMESPACE",), managed=True),
    Program("gcr.io/gke-release/custom-metrics-stackdriver-adapter", _stackdriver_adapter),
    Program("ghcr.io/huggingface/text-generation-inference", _tgi, STUB_VARIABLES),
    Program(
        "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/huggingface-text-generation-inference*",
        _tgi,
        STUB_VARIABLES,
    ),
    Program("us-docker.pkg.dev/cloud-tpu-images/inference/maxengine-server", _maxengine, STUB_VARIABLES),
    Program("us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http", _jetstream_http, STUB_VARIABLES),
    Program("gke.gcr.io/tpu-device-plugin", _device_plugin),
    Program("rayproject/ray", _ray),
    # Last, because JetStream and TGI have further APIs.
    *(
        Program(engine.image_name, _server(engine), (*STUB_VARIABLES, engine.api_key_variable))
        for engine in ENGINES.values()
    ),
)
