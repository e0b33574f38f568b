"""The emulator's command-line tools, the Go modules that pin them, and the folders that they are installed in.

Each folder of `emulator/tools` is a Go module that pins its tools and all their dependencies (go.mod, go.sum). Tools
that need the same versions of libraries share one: shared packages compile once. A program is installed in
`CACHE/tools/<module>-<key>/bin`; the key is a hash of everything that the build depends on. `emulator.setup.go_build`
builds them. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from emulator.machine.paths import CACHE, ROOT
from emulator.machine.progress import Stop

MODULES = ROOT / "emulator" / "tools"
# A binary without symbol tables is a third smaller. Without debug information it also compiles faster.
GO_FLAGS = ("-mod=readonly", "-trimpath", "-gcflags=all=-dwarf=false")
STRIPPED = "-s -w"


@dataclass(frozen=True)
class Shipped:
    """A file or folder that a Go module ships beside its code, and its path in the tool's folder.

    A chart in a repository names the charts that its release contains, and Helm refuses it without them: `alone` leaves
    them out.
    """

    module: str
    path: str
    to: str
    alone: bool = False


@dataclass(frozen=True, eq=False)
class Module:
    """A folder of `emulator/tools`: a Go module that pins one or more tools.

    Attributes:
        name: Name of the folder.
        stamps: Go variables that hold a version; a build from source leaves them empty. `{version}` (v1.37.2),
            `{major}` and `{minor}` are those of the Go module after the `@`.
        ships: Files that are copied out of the module cache with the first tool that is built.
    """

    name: str
    stamps: Mapping[str, str] = field(default_factory=dict)
    ships: tuple[Shipped, ...] = ()

    @property
    def source(self) -> Path:
        return MODULES / self.name

    def version(self, path: str) -> str:
        """The version of a Go module as go.mod pins it: `v1.37.2`."""
        pins = self.source / "go.mod"
        pinned = re.search(rf"^\s*(?:require\s+)?{re.escape(path)} (v\S+)", pins.read_text(), re.M)
        if not pinned:
            raise Stop(f"{pins} doesn't require {path}. The checkout is damaged: restore that file.")
        return pinned[1]

    def linker_flags(self) -> str:
        stamps = []
        for variable, value in self.stamps.items():
            version = self.version(value.partition("@")[2])
            major, minor = version.removeprefix("v").split(".")[:2]
            text = value.partition("@")[0].format(version=version, major=major, minor=minor)
            stamps.append(f"-X {variable}={text}")
        return " ".join([STRIPPED, *stamps])

    def folder(self, go_version: str) -> Path:
        """Folder of this module's programs, as built by this version of Go."""
        ships = [(shipped.module, shipped.path, shipped.to) for shipped in self.ships]
        key = hashlib.sha256(json.dumps([go_version, GO_FLAGS, self.linker_flags(), ships]).encode())
        for name in ("go.mod", "go.sum"):
            key.update((self.source / name).read_bytes())
        return CACHE / "tools" / f"{self.name}-{key.hexdigest()[:16]}"


@dataclass(frozen=True)
class Edit:
    """A change in a Go module: `path` must have `old` exactly once."""

    module: str
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Tool:
    """Programs that are built together because they are needed together.

    Attributes:
        name: Name of the tool, as in `emulator/run --tools NAME`.
        module: The module that pins the tool.
        requires: The Go module whose version is the tool's version.
        packages: The Go package of each program, by program.
        seconds: Build time on two cores with an empty cache, measured 2026-11-29. Set-up estimates the time left
            from it.
        version_arguments: Arguments that make a program print its version, by program. Empty if it has none.
        edits: What differs from the release, in a program that says so by its name. Other edits need another name.
    """

    name: str
    module: Module
    requires: str
    packages: Mapping[str, str]
    seconds: int
    version_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()

    @property
    def version(self) -> str:
        return self.module.version(self.requires)

    @property
    def title(self) -> str:
        version = self.version.removeprefix("v")
        return f"{self.name.removesuffix(f'-{version}')} {version}"

    def programs(self, folder: Path) -> list[Path]:
        """Paths of the tool's programs in the module's folder."""
        return [folder / "bin" / program for program in self.packages]

    def exists(self, folder: Path) -> bool:
        """Whether all programs are there. A full disk or a lost file system can leave an empty file."""
        return all(program.is_file() and program.stat().st_size for program in self.programs(folder))


VISIBILITY = {
    # Kueue writes the certificate of its visibility API there and exits if it can't. `/visibility` would need root.
    "sigs.k8s.io/kueue/pkg/visibility.certDir": "visibility@sigs.k8s.io/kueue"
}
CHARTS = (
    Shipped("sigs.k8s.io/kueue", "charts/kueue", "charts/kueue"),
    Shipped("sigs.k8s.io/jobset", "charts/jobset", "charts/jobset"),
)
KUBERNETES = Module(
    "kubernetes",
    stamps={
        # Without these the API server reports v0.0.0-master, which clients can't parse.
        "k8s.io/component-base/version.gitVersion": "{version}@k8s.io/kubernetes",
        "k8s.io/component-base/version.gitMajor": "{major}@k8s.io/kubernetes",
        "k8s.io/component-base/version.gitMinor": "{minor}@k8s.io/kubernetes",
    },
)
# Kueue and JobSet don't build with the libraries of later releases of Kubernetes.
KUEUE = Module(
    "kueue",
    stamps={"helm.sh/helm/v3/internal/version.version": "{version}@helm.sh/helm/v3", **VISIBILITY},
    ships=CHARTS,
)
PULUMI = Module(
    "pulumi",
    stamps={"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": "{version}@github.com/pulumi/pulumi/pkg/v3"},
    ships=(
        # Runs a Pulumi program in Python; the language host starts it.
        Shipped(
            "github.com/pulumi/pulumi/sdk/v3",
            "python/cmd/pulumi-language-python-exec",
            "bin/pulumi-language-python-exec",
        ),
    ),
)
# Earlier releases, each pinned with the libraries of its time. Kueue's charts of a version are in its module's folder.
KUEUE_0_16 = Module("kueue-0.16", stamps=VISIBILITY, ships=CHARTS)
KUEUE_0_18 = Module("kueue-0.18", stamps=VISIBILITY, ships=CHARTS[:1])
EARLIER = (KUEUE_0_16, KUEUE_0_18)
# The endpoint picker of the Gateway API Inference Extension, and its router by the model of a request:
# https://gateway-api-inference-extension.sigs.k8s.io
INFERENCE_EXTENSION = Module("endpoint-picker")
# Controllers of TrainJobs and of Ray, with their charts. They need other versions of controller-runtime.
TRAINER = Module(
    "trainer",
    ships=(
        Shipped("github.com/kubeflow/trainer/v2", "charts/kubeflow-trainer", "charts/kubeflow-trainer", alone=True),
    ),
)
KUBERAY = Module(
    "kuberay",
    ships=(Shipped("github.com/ray-project/kuberay", "helm-chart/kuberay-operator", "charts/kuberay-operator"),),
)
# Modules with charts beside those of the pinned Kueue and JobSet.
WITH_CHARTS = (*EARLIER, TRAINER, KUBERAY)
TOOLS = (
    Tool(
        "kubernetes",
        KUBERNETES,
        "k8s.io/kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        seconds=360,
        version_arguments={
            "kube-apiserver": ("--version",),
            "kube-controller-manager": ("--version",),
            "kube-scheduler": ("--version",),
            "kubectl": ("version", "--client"),
        },
    ),
    Tool(
        "etcd",
        KUBERNETES,
        "go.etcd.io/etcd/server/v3",
        {"etcd": "go.etcd.io/etcd/server/v3"},
        seconds=10,
        version_arguments={"etcd": ("--version",)},
    ),
    Tool(
        "kwok",
        KUEUE,
        "sigs.k8s.io/kwok",
        {"kwok": "sigs.k8s.io/kwok/cmd/kwok", "kwokctl": "sigs.k8s.io/kwok/cmd/kwokctl"},
        seconds=100,
        version_arguments={"kwok": ("--version",), "kwokctl": ("--version",)},
    ),
    Tool(
        "helm",
        KUEUE,
        "helm.sh/helm/v3",
        {"helm": "helm.sh/helm/v3/cmd/helm"},
        seconds=25,
        version_arguments={"helm": ("version", "--short")},
    ),
    Tool("kueue", KUEUE, "sigs.k8s.io/kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}, seconds=130),
    # Kueue for simulations: it tries waiting workloads again 1 ms after quota is free, not 1 s, and the clock of past
    # usage is the time of its configuration file. docs/decisions/0016-simulated-time.md
    Tool(
        "kueue-simulation",
        KUEUE,
        "sigs.k8s.io/kueue",
        {"kueue-v0.19.2-simulated": "sigs.k8s.io/kueue/cmd/kueue"},
        seconds=80,
        edits=(
            Edit(
                "sigs.k8s.io/kueue",
                "pkg/cache/queue/inadmissible_workloads.go",
                "requeueBatchPeriod     = 1 * time.Second",
                "requeueBatchPeriod     = 1 * time.Millisecond",
            ),
            Edit(
                "sigs.k8s.io/kueue",
                "pkg/controller/core/localqueue_controller.go",
                'import (\n\t"context"\n',
                'import (\n\t"context"\n\t"os"\n\t"strings"\n',
            ),
            Edit(
                "sigs.k8s.io/kueue",
                "pkg/controller/core/localqueue_controller.go",
                "var defaultLQOptions = LocalQueueReconcilerOptions{\n\tclock: realClock,\n}\n",
                "var defaultLQOptions = LocalQueueReconcilerOptions{\n\tclock: usageClock{},\n}\n"
                "\n// usageClock is the time of the file that --config names.\n"
                "type usageClock struct{ clock.RealClock }\n"
                "\nfunc (c usageClock) Now() time.Time {\n"
                '\tinfo, err := os.Stat(strings.TrimPrefix(os.Args[1], "--config="))\n'
                "\tif err != nil {\n\t\treturn c.RealClock.Now()\n\t}\n\treturn info.ModTime()\n}\n",
            ),
            Edit(
                "sigs.k8s.io/kueue",
                "pkg/controller/core/workload_controller.go",
                "\tnow := r.clock.Now()\n\n\tcacheLq, err",
                "\tnow := usageClock{}.Now()\n\n\tcacheLq, err",
            ),
        ),
    ),
    Tool("jobset", KUEUE, "sigs.k8s.io/jobset", {"jobset": "sigs.k8s.io/jobset"}, seconds=10),
    Tool(
        "pulumi",
        PULUMI,
        "github.com/pulumi/pulumi/pkg/v3",
        {"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        seconds=240,
        version_arguments={"pulumi": ("version",)},
    ),
    Tool(
        "prometheus",
        Module("prometheus"),
        "github.com/prometheus/prometheus",
        {"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
        seconds=200,
    ),
    Tool(
        "prometheus-adapter",
        Module("prometheus-adapter"),
        "sigs.k8s.io/prometheus-adapter",
        {"prometheus-adapter": "sigs.k8s.io/prometheus-adapter/cmd/adapter"},
        seconds=135,
    ),
    Tool(
        "endpoint-picker",
        INFERENCE_EXTENSION,
        "sigs.k8s.io/gateway-api-inference-extension",
        # It reads metrics of pods through a proxy, because their addresses lead nowhere on this machine.
        {"epp-v1.5.0-proxied": "sigs.k8s.io/gateway-api-inference-extension/cmd/epp"},
        seconds=180,
        edits=(
            Edit(
                "sigs.k8s.io/gateway-api-inference-extension",
                "pkg/epp/framework/plugins/datalayer/source/http/client.go",
                "\tbaseTransport = &http.Transport{\n",
                "\tbaseTransport = &http.Transport{\n\t\tProxy: http.ProxyFromEnvironment,\n",
            ),
        ),
    ),
    Tool(
        "model-router",
        INFERENCE_EXTENSION,
        "sigs.k8s.io/gateway-api-inference-extension",
        {"bbr": "sigs.k8s.io/gateway-api-inference-extension/cmd/bbr"},
        seconds=15,
    ),
    Tool(
        "kubeflow-trainer",
        TRAINER,
        "github.com/kubeflow/trainer/v2",
        {"trainer-controller-manager": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
        seconds=75,
    ),
    Tool(
        "kuberay-operator",
        KUBERAY,
        "github.com/ray-project/kuberay/ray-operator",
        {"kuberay-operator": "github.com/ray-project/kuberay/ray-operator"},
        seconds=75,
    ),
    # Runs programs in YAML, which use the components as a package. `emulator/bin` has it under the engine's name.
    Tool(
        "pulumi-yaml",
        Module("pulumi-yaml"),
        "github.com/pulumi/pulumi-yaml",
        {"yaml-language-host": "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"},
        seconds=130,
    ),
    # Checks the workflows in make lint.
    Tool(
        "actionlint",
        Module("actionlint"),
        "github.com/rhysd/actionlint",
        {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
        seconds=25,
        version_arguments={"actionlint": ("-version",)},
    ),
    # Earlier releases: a rehearsal runs the cluster's own, and `make rehearse UPGRADE=…` and tests upgrade from them.
    Tool(
        "kueue-0.16.2", KUEUE_0_16, "sigs.k8s.io/kueue", {"kueue-v0.16.2": "sigs.k8s.io/kueue/cmd/kueue"}, seconds=155
    ),
    Tool("jobset-0.11.1", KUEUE_0_16, "sigs.k8s.io/jobset", {"jobset-v0.11.1": "sigs.k8s.io/jobset"}, seconds=60),
    Tool(
        "kueue-0.18.4", KUEUE_0_18, "sigs.k8s.io/kueue", {"kueue-v0.18.4": "sigs.k8s.io/kueue/cmd/kueue"}, seconds=155
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
# Tools that no test of `make test` needs: earlier releases, and the controllers of TrainJobs and of Ray.
NIGHTLY = frozenset(tool.name for tool in TOOLS if tool.module in WITH_CHARTS)
