"""Builds the command-line tools of the emulator from their Go modules, once for each version, into the user's cache.

Each folder of `emulator/tools` is a Go module that pins one tool with everything it is made of (go.mod, go.sum); Go
verifies every download against go.sum. A tool lands in `CACHE/tools/<name>-<key>/bin`, the key being a hash of all that
decides the result. It is built beside that place and renamed into it, so what is there is whole. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from emulator.paths import CACHE, ROOT
from emulator.progress import CommandFailed, Step, Stop

MODULES = ROOT / "emulator" / "tools"
OLDEST_GO = (1, 26)
GO_FLAGS = ("-mod=readonly", "-trimpath")
STRIPPED = "-s -w"  # without symbol tables a binary is a third smaller


@dataclass(frozen=True)
class Shipped:
    """A file or folder that a module carries beside its code."""

    module: str
    path: str
    to: str


@dataclass(frozen=True)
class Tool:
    """A folder of `emulator/tools` and what comes out of it.

    Attributes:
        name: The folder.
        module: The Go module whose version is the tool's.
        binaries: Each program, with the arguments that make it print its version; none if it has no such arguments.
        built_as: What Go names a program, where that isn't the name it goes by.
        stamps: Go variables that carry the version, which a build from source leaves empty; `{version}` (v1.35.4),
            `{major}` and `{minor}` are filled in.
        ships: What is copied out of the module cache.
    """

    name: str
    module: str
    binaries: Mapping[str, tuple[str, ...]]
    built_as: Mapping[str, str] = field(default_factory=dict)
    stamps: Mapping[str, str] = field(default_factory=dict)
    ships: tuple[Shipped, ...] = ()

    @property
    def source(self) -> Path:
        return MODULES / self.name

    @property
    def version(self) -> str:
        """As go.mod pins it: `v1.35.4`."""
        pins = self.source / "go.mod"
        found = re.search(rf"^\s*(?:require\s+)?{re.escape(self.module)} (v\S+)", pins.read_text(), re.M)
        if not found:
            raise Stop(f"{pins} doesn't require {self.module}: the checkout is damaged, restore that file.")
        return found[1]

    @property
    def title(self) -> str:
        return f"{self.name} {self.version.removeprefix('v')}"

    def linker_flags(self) -> str:
        major, minor = self.version.removeprefix("v").split(".")[:2]
        stamps = (f"-X {name}={value}" for name, value in self.stamps.items())
        return " ".join([STRIPPED, *stamps]).format(version=self.version, major=major, minor=minor)

    def folder(self, go_version: str) -> Path:
        """Where this very build belongs."""
        recipe = [go_version, GO_FLAGS, self.linker_flags(), dict(self.binaries), dict(self.built_as)]
        ships = [(shipped.module, shipped.path, shipped.to) for shipped in self.ships]
        key = hashlib.sha256(json.dumps([recipe, ships]).encode())
        for name in ("go.mod", "go.sum"):
            key.update((self.source / name).read_bytes())
        return CACHE / "tools" / f"{self.name}-{key.hexdigest()[:16]}"


TOOLS = (
    Tool(
        "pulumi",
        "github.com/pulumi/pulumi/pkg/v3",
        {"pulumi": ("version",)},
        stamps={"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": "{version}"},
        ships=(
            # What runs a Python program inside a deployment; the language host starts it.
            Shipped(
                "github.com/pulumi/pulumi/sdk/v3",
                "python/cmd/pulumi-language-python-exec",
                "bin/pulumi-language-python-exec",
            ),
        ),
    ),
    Tool(
        "kubernetes",
        "k8s.io/kubernetes",
        {
            "kube-apiserver": ("--version",),
            "kube-controller-manager": ("--version",),
            "kube-scheduler": ("--version",),
            "kubectl": ("version", "--client"),
        },
        # Without these it calls itself v0.0.0-master, which clients can't parse.
        stamps={
            "k8s.io/component-base/version.gitVersion": "{version}",
            "k8s.io/component-base/version.gitMajor": "{major}",
            "k8s.io/component-base/version.gitMinor": "{minor}",
        },
    ),
    Tool("etcd", "go.etcd.io/etcd/server/v3", {"etcd": ("--version",)}, built_as={"etcd": "server"}),
    Tool("kwok", "sigs.k8s.io/kwok", {"kwok": ("--version",), "kwokctl": ("--version",)}),
    Tool(
        "kueue",
        "sigs.k8s.io/kueue",
        {"kueue": ()},
        # It writes the certificate of its visibility API there, and ends where it can't: `/visibility` would want root.
        stamps={"sigs.k8s.io/kueue/pkg/visibility.certDir": "visibility"},
        ships=(Shipped("sigs.k8s.io/kueue", "charts/kueue", "charts/kueue"),),
    ),
    Tool(
        "jobset",
        "sigs.k8s.io/jobset",
        {"jobset": ()},
        ships=(Shipped("sigs.k8s.io/jobset", "charts/jobset", "charts/jobset"),),
    ),
    Tool("prometheus", "github.com/prometheus/prometheus", {"prometheus": ()}),
    Tool(
        "prometheus-adapter",
        "sigs.k8s.io/prometheus-adapter",
        {"prometheus-adapter": ()},
        built_as={"prometheus-adapter": "adapter"},
    ),
    # Runs programs in YAML, which use the components as a package. `emulator/bin` holds it under the engine's name.
    Tool(
        "pulumi-yaml",
        "github.com/pulumi/pulumi-yaml",
        {"yaml-language-host": ()},
        built_as={"yaml-language-host": "pulumi-language-yaml"},
    ),
    Tool(
        "helm",
        "helm.sh/helm/v3",
        {"helm": ("version", "--short")},
        stamps={"helm.sh/helm/v3/internal/version.version": "{version}"},
    ),
    # Looks at the workflows in make lint.
    Tool("actionlint", "github.com/rhysd/actionlint", {"actionlint": ("-version",)}),
)


# What a test upgrades from: built when it is first asked for. Two programs of one module, as they share most packages.
PREVIOUS = Tool(
    "previous",
    "sigs.k8s.io/kueue",
    {"kueue-v0.16.2": (), "jobset-v0.11.1": ()},
    built_as={"kueue-v0.16.2": "kueue", "jobset-v0.11.1": "jobset"},
    stamps={"sigs.k8s.io/kueue/pkg/visibility.certDir": "visibility"},
    ships=(
        Shipped("sigs.k8s.io/kueue", "charts/kueue", "charts/kueue"),
        Shipped("sigs.k8s.io/jobset", "charts/jobset", "charts/jobset"),
    ),
)


def go_version() -> str:
    """The version of the Go on PATH, such as `go1.26.8`.

    Raises:
        Stop: There is none, or it is too old.
    """
    needed = ".".join(map(str, OLDEST_GO))
    way_out = f"Install Go {needed} or newer (go.dev/doc/install, or your distribution's package) and run this again."
    if not shutil.which("go"):
        raise Stop(f"Go isn't on PATH, and the emulator's tools are built with it. {way_out}")
    asked = _go(TOOLS[0], "env", "GOVERSION")
    version = asked.stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if not found or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise Stop(f"Go {needed} or newer is needed; here is {version or asked.stderr.strip()}. {way_out}")
    return version


@contextmanager
def alone(name: Path) -> Iterator[None]:
    """Holds a lock beside `name`, so that two set-ups at once build once; the kernel frees it if this is killed."""
    name.parent.mkdir(parents=True, exist_ok=True)
    with (name.parent / f".{name.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(tool: Tool, folder: Path, step: Step) -> str:
    """Makes `folder` hold the tool: programs in `bin`, charts in `charts`. Returns how: built, copied from PATH.

    Raises:
        Stop: Go could not build it; the text has the compiler's last lines and a way out.
    """
    step.note("waiting for another set-up that builds it")
    with alone(folder):
        if folder.exists():
            return "found, built by another set-up,"
        for left_over in folder.parent.glob(f".{folder.name}-*"):
            shutil.rmtree(left_over)  # of a build that was killed
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        unfinished.chmod(0o755)
        try:
            (unfinished / "bin").mkdir()
            how = "copied from PATH" if _copy_from_path(tool, unfinished / "bin") else "built"
            if how == "built":
                _build(tool, unfinished / "bin", step)
            for shipped in tool.ships:
                _copy_shipped(tool, shipped, unfinished / shipped.to)
            unfinished.rename(folder)
        except CommandFailed as failure:
            raise Stop(
                f"{tool.title} could not be built. What Go said last:\n"
                + "".join(f"    {line}\n" for line in failure.said)
                + f"{_way_out(str(failure))} Then run this again: what is built stays."
            ) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return how


def _build(tool: Tool, programs: Path, step: Step) -> None:
    compiled = 0

    def hear(line: str) -> str | None:
        nonlocal compiled
        if line.startswith("go: downloading "):
            return line.removeprefix("go: ")
        if re.fullmatch(r"[\w.~-]+(/[\w.~-]+)*", line):  # -v: a package that is being compiled
            compiled += 1
            return f"{compiled} packages compiled"
        return None

    step.note("reading its modules")
    # "tool" stands for all that the module's tool directives name.
    command = ["go", "build", "-v", *GO_FLAGS, "-ldflags", tool.linker_flags(), "-o", f"{programs}{os.sep}", "tool"]
    step.run(command, hear=hear, cwd=tool.source, env=_go_env())
    for name, built_as in tool.built_as.items():
        (programs / built_as).rename(programs / name)


def _copy_from_path(tool: Tool, programs: Path) -> bool:
    """Takes all programs of a tool from PATH if each is there at exactly the pinned version.

    Copies: what lies elsewhere may be replaced at any time. Only real programs: a version manager's script isn't one.
    """
    found = {name: _on_path(name, arguments, tool.version) for name, arguments in tool.binaries.items()}
    if not all(found.values()):
        return False
    for name, path in found.items():
        shutil.copy(str(path), programs / name)
    return True


def _on_path(name: str, version_arguments: tuple[str, ...], version: str) -> Path | None:
    ours = (CACHE, ROOT / "emulator")
    folders = [folder for folder in os.get_exec_path() if not any(Path(folder).is_relative_to(our) for our in ours)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if not path or not version_arguments:
        return None
    with Path(path).open("rb") as program:
        if program.read(4) != b"\x7fELF":
            return None
    quiet = os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        said = subprocess.run([path, *version_arguments], env=quiet, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # 3.18.6 also as v3.18.6+g1234567, but not as 3.18.6-rc.1 or 3.18.60.
    exact = re.search(rf"(?<![\w.-])v?{re.escape(version.removeprefix('v'))}(?![\w.-])", said.stdout)
    return Path(path) if said.returncode == 0 and exact else None


def _copy_shipped(tool: Tool, shipped: Shipped, to: Path) -> None:
    """Out of the module cache, which Go fills and verifies against go.sum."""
    asked = _go(tool, "mod", "download", "-json", shipped.module)
    if asked.returncode != 0:
        raise CommandFailed((asked.stderr or asked.stdout).strip().splitlines())
    source = Path(json.loads(asked.stdout)["Dir"]) / shipped.path
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to)
        for path in (to, *to.rglob("*")):  # the module cache is read-only; a read-only copy could not be removed
            path.chmod(0o755 if path.is_dir() else 0o644)
    else:
        shutil.copyfile(source, to)
        to.chmod(0o755)


def _go(tool: Tool, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *arguments], cwd=tool.source, env=_go_env(), capture_output=True, text=True)


def _go_env() -> dict[str, str]:
    # A user's workspace or GOPATH mode must not change what the pinned modules mean.
    return os.environ | {"GOWORK": "off", "GO111MODULE": "on"}


# What Go says, and what to do about it.
_WAYS_OUT = {
    r"no space left on device": "Free some disk space: Go's cache (`go env GOCACHE`) needs several GB.",
    r"signal: killed|cannot allocate memory": "Memory ran out: compile less at once, with GOFLAGS=-p=1.",
    r"checksum mismatch|SECURITY ERROR": "The download isn't what go.sum recorded: check `go env GOPROXY`.",
    r"\b40[34]\b|dial tcp|timeout|no such host|connection re": "Go's module proxy must be reachable: `go env GOPROXY`.",
}


def _way_out(said: str) -> str:
    default = "The lines above name what is missing."
    return next((way_out for sign, way_out in _WAYS_OUT.items() if re.search(sign, said)), default)
