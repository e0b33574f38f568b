"""The program that a process of a test run counts as, from its command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator.toolchain import TOOLS

API_SERVER, ETCD, ENGINE, PYTEST, OTHER = "API server", "etcd", "engine", "pytest", "other"
PROGRAM, PLUGINS, EMULATOR, COMMANDS, PODS, GO_TOOLS = "program", "plugins", "emulator", "commands", "pods", "Go tools"
# In the order of the table's columns, each with what it counts.
PROGRAMS = {
    API_SERVER: "kube-apiserver",
    ETCD: "etcd",
    ENGINE: "Pulumi's engine, `pulumi`",
    PROGRAM: "Pulumi's Python programs: the language host, the program, policy packs, components",
    PLUGINS: "the emulated plugins `gcp` and `kubernetes`, and the plugin for credentials",
    GO_TOOLS: "every other built tool: Kueue, JobSet, KWOK, the controller manager, the scheduler, helm, kubectl, …",
    EMULATOR: "the emulator's daemon and commands",
    COMMANDS: "the command `gke-ai`",
    PODS: "containers of local pods that run Python: stubs of model servers, training programs",
    PYTEST: "pytest itself, with every test that runs in its process",
    OTHER: "shells, envoy, git, and each process that ended before it was seen",
}
BUILT = {name for tool in TOOLS for name in tool.packages}
NAMED = {"kube-apiserver": API_SERVER, "etcd": ETCD, "pulumi": ENGINE, "pytest": PYTEST, "pulumi-resource-gcp": PLUGINS}
# The programs of Python's `-m`, by module or by the package of the module.
MODULES = {
    "emulator.language_host": PROGRAM,
    "pulumi.policy": PROGRAM,
    "emulator.gcp_plugin": PLUGINS,
    "emulator.kubernetes_plugin": PLUGINS,
    "emulator.auth_plugin": PLUGINS,
    "emulator": EMULATOR,
    "gke_ai": COMMANDS,
    "pytest": PYTEST,
}
# Verbs of the engine that run a program or change a stack.
VERBS = {"up", "update", "preview", "refresh", "destroy", "import", "watch"}
# A process with this variable belongs to a container of a local pod (emulator/cluster/processes.py).
POD_VARIABLE = b"GKE_AI_POD="


def program_of(command: Sequence[str], variables: Sequence[bytes]) -> str:
    """The program that a process counts as, one of PROGRAMS."""
    name = Path(command[0]).name if command else ""
    if name in NAMED:
        return NAMED[name]
    if name in BUILT:
        return GO_TOOLS
    if any(variable.startswith(POD_VARIABLE) for variable in variables):
        return PODS
    if not name.startswith("python"):
        return OTHER
    if "-m" in command[1:-1]:
        module = command[command.index("-m") + 1]
        return MODULES.get(module) or MODULES.get(module.partition(".")[0], OTHER)
    scripts = {Path(word).name for word in command[1:]}
    if scripts & {"pulumi-language-python-exec", "pulumi-language-python"}:
        return PROGRAM
    return PYTEST if scripts & {"pytest", "py.test"} else OTHER


def is_engine_run(command: Sequence[str]) -> bool:
    """True for a `pulumi` that runs a program or changes a stack."""
    return bool(command) and Path(command[0]).name == "pulumi" and not VERBS.isdisjoint(command[1:])


def is_warm_server(command: Sequence[str]) -> bool:
    """True for the process from which programs fork, and for its forks. It belongs to no worker: all share it."""
    return any(script.endswith("emulator/warm.py") and "--serve" in command for script in command)
