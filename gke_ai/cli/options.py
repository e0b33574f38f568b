"""The options that several verbs have."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.cli import tools
from gke_ai.kube.client import current_context
from gke_ai.terminal import Stop
from gke_ai.workspace.emulation import INSTALLED, RUN, enter, on_emulator
from gke_ai.workspace.stack import ENVIRONMENTS_OF, Context, Stack

Function = TypeVar("Function", bound=Callable[..., Any])
VARIABLE = "GKE_AI_"
COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


class Checked(click.ParamType[Any]):
    """A text that a function parses. Its ValueError says what is wrong."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns what the function makes of a text."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


FILE = Checked("file", lambda text: Path(text).absolute() if text else None)


def option(name: str, *more: str, **named: Any) -> Callable[[Function], Function]:
    """An option, which its variable sets too: GKE_AI_STACK for `--stack`."""
    return click.option(name, *more, envvar=variable(name), **named)


def file_option(name: str, *more: str, **named: Any) -> Callable[[Function], Function]:
    """An option that names a file."""
    return option(name, *more, type=FILE, **named)


def variable(name: str) -> str:
    """The variable of an option."""
    return VARIABLE + name.lstrip("-").upper().replace("-", "_")


def emulator_option(function: Function) -> Function:
    """Adds `--emulator`."""
    text = "use the emulator on this machine, in place of Google Cloud"
    return click.option("--emulator", is_flag=True, help=text)(function)


def always_on_emulator(function: Function) -> Function:
    """Accepts `--emulator` for a verb that has no other place."""
    return click.option("--emulator", is_flag=True, expose_value=False, hidden=True)(function)


def context_option(function: Function) -> Function:
    """Adds `--context`."""
    text = "read the cluster of this context of the kubeconfig, which needs no stack"
    return option("--context", default="", help=text)(function)


def stack_options(function: Function) -> Function:
    """Adds `--stack` and `--config`, which give the function the name of a stack and its configuration file."""
    text = "configuration file. Default: Pulumi.STACK.yaml"
    config = file_option("--config", "--config-file", "config", help=text)
    named = option("--stack", default="", help="name of the stack. Default: that of the configuration, or dev")
    return named(config(function))


def name_of(stack: str, config: Path | None) -> str:
    """Returns the name of the stack: the stated one, else that of its configuration, else dev."""
    name = stack or (config.stem.removeprefix("Pulumi.") if config else "dev")
    if not re.fullmatch(r"[\w./-]+", name, re.ASCII):  # commands to be pasted have it
        raise Stop(f"{name!r} is not the name of a stack. Pulumi would refuse it. Use letters, digits, - and _.")
    os.environ[ENVIRONMENTS_OF] = name
    return name


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function its cluster alone, from `--context`, `--kubeconfig` and `--namespace`."""

    @functools.wraps(function)
    def run(context: str, kubeconfig: Path | None, namespace: str, **named: Any) -> Any:
        return function(alone(context, kubeconfig, namespace), **named)

    text = "context of the kubeconfig. Default: its current one"
    return member_options(option("--context", default="", help=text)(run))


def member_options(function: Function) -> Function:
    """Adds `--kubeconfig` and `--namespace`, for a user with rights in a namespace alone."""
    file = file_option("--kubeconfig", help="kubeconfig. Default: KUBECONFIG, or else ~/.kube/config")
    text = "namespace of the runs. Default: that of the context"
    return file(option("--namespace", default="", help=text)(function))


def with_stack(
    deploying: bool = False, context: bool = False, namespaced: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a function its stack, from `--stack`, `--config` and `--emulator`, or with `context` from `--context`.

    On the emulator, the stack is prepared. With `deploying`, it must have everything that it expects to exist. With
    `namespaced`, `--kubeconfig` and `--namespace` name a cluster alone too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(stack: str, config: Path | None, emulator: bool, context: str = "", **named: Any) -> Any:
            if namespaced:
                kubeconfig, namespace = named.pop("kubeconfig"), named.pop("namespace")
                if kubeconfig or namespace:
                    return function(alone(context, kubeconfig, namespace), **named)
            return function(target(stack, config, emulator, context, deploying), **named)

        with_context = context_option(run) if context else run
        return stack_options(emulator_option(member_options(with_context) if namespaced else with_context))

    return decorate


def target(stack: str, config: Path | None, emulator: bool, context: str = "", deploying: bool = False) -> Stack:
    """Returns the stack, or the cluster alone, that the options of a verb name."""
    if context:
        return alone(context)
    name = name_of(stack, config)
    if emulator:
        enter_emulator(name)
    if not on_emulator():
        if deploying and (file := Stack(name, config).file).exists():
            from gke_ai.workspace.configuration_file import read_sections

            read_sections(file, deploying)
        return Stack(name, config)
    from gke_ai.workspace.emulated import prepare

    return prepare(name, config, deploying)


def alone(context: str, kubeconfig: Path | None = None, namespace: str | None = None) -> Context:
    """Returns the cluster of a context. Refuses options of a stack beside it; their variables have no effect.

    With a namespace, also an empty one, the default is the current context, and its namespace.
    """
    verb = click.get_current_context()
    stated = [name for name in ("stack", "config", "emulator") if verb.get_parameter_source(name) == COMMAND_LINE]
    if stated:
        raise click.UsageError(f"--context reads a cluster alone, so --{stated[0]} has no effect. Leave it out.")
    if namespace is None:
        return Context(context)
    name, of_context = current_context(str(kubeconfig or ""), context)
    return Context(name, kubeconfig=kubeconfig, namespace=namespace or of_context, is_stated=bool(namespace))


def enter_emulator(name: str) -> None:
    """Runs this command again under `emulator/run`, with the tools of its verb, unless it runs there already."""
    if on_emulator():
        return
    from importlib.metadata import version

    if INSTALLED and not (RUN.is_file() and version("gke-ai-emulator") == PROJECT_VERSION):
        raise Stop(
            f"The emulator of gke-ai {PROJECT_VERSION} is not installed. "
            f"Install it from its wheel:  pip install wheels/gke_ai_emulator-{PROJECT_VERSION}-py3-none-any.whl"
        )
    verb = click.get_current_context()
    open_environments(Stack(name, verb.params.get("config")).file, verb.params)
    stated = {variable(option): str(value) for option, value in verb.params.items() if value}
    needed = ",".join(tools.needed(str(verb.info_name), {variable("stack"): name, **stated}))
    os.environ["GKE_AI_PURPOSE"] = f"stack {name}"
    enter("--tools", needed, "gke-ai", *sys.argv[1:])


def open_environments(file: Path, options: Mapping[str, Any]) -> None:
    """Opens the environments of the configurations that a verb names, before the emulator, which has no login."""
    for path in filter(None, (file, options.get("base"), *(options.get("compare") or ()))):
        if path.is_file() and b"environment" in path.read_bytes():
            from gke_ai.workspace.configuration_file import read_keys

            read_keys(path)


json_option = file_option("--json", help="file for the result as JSON")
picture_option = file_option("--picture", help="file for the picture as SVG. Default: in the emulator's state")
blocks_option = file_option("--blocks", help="file for a picture of the blocks of the network as SVG: docs/topology.md")
prices_option = file_option("--prices", help="own price table in YAML: docs/report.md#prices. Default: list prices")
snapshot_option = file_option("--snapshot", help="file that `gke-ai snapshot` printed")
yes_option = option("--yes", is_flag=True, help="do not ask")
