"""docs/command.md: every verb of `gke-ai`, from its help."""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping

import click

from gke_ai.cli.verbs import gke_ai
from maintain.pages import with_parts


def page() -> str:
    shared = shared_options()
    sections = (line for section in gke_ai.sections.items() for line in of_section(*section, shared))
    before = "The value of an option follows its name.\n\n"
    return with_parts("command.md", (before, "", "\n".join([table(shared), *sections])))


def shared_options() -> dict[str, str]:
    """The options that several verbs describe alike, with their meaning."""
    uses = Counter(
        (of_option(option), meaning(option)) for verb in gke_ai.commands.values() for option in options_of(verb)
    )
    shared: dict[str, str] = {}
    for (names, text), times in uses.most_common():
        if times > 1:
            shared.setdefault(names, text)
    return shared


def of_section(title: str, names: list[str], shared: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    for name in names:
        yield from of_verb(name, gke_ai.commands[name], shared)


def of_verb(name: str, verb: click.Command, shared: Mapping[str, str]) -> Iterator[str]:
    yield f"### {name}\n"
    for paragraph in inspect.cleandoc(verb.help or "").split("\n\n"):
        yield " ".join(paragraph.split()) + "\n"
    examples = [line.strip() for line in (verb.epilog or "").splitlines() if "gke-ai" in line]
    yield "```\n" + "\n".join(examples) + "\n```\n"
    options = {of_option(option): (option, meaning(option)) for option in options_of(verb)}
    own = {names: text for names, (_, text) in options.items() if shared.get(names) != text}
    if own:
        yield table(own)
    if names := [f"`{option.opts[0]}`" for names, (option, _) in options.items() if names not in own]:
        yield f"[Shared](#shared-options): {', '.join(names)}\n"


def options_of(verb: click.Command) -> list[click.Option]:
    return [param for param in verb.params if isinstance(param, click.Option) and not param.hidden]


def table(options: Mapping[str, str]) -> str:
    rows = (f"| {names} | {text} |" for names, text in options.items())
    return "\n".join(["| option | meaning |\n| --- | --- |", *rows]) + "\n"


def of_option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    return names if option.is_flag else f"{names} {option.metavar or option.type.name.upper()}".replace("|", "\\|")


def meaning(option: click.Option) -> str:
    default = f". Default: {option.default}" if option.show_default and option.default is not None else ""
    return f"{option.help}{default}".replace("|", "\\|")
