"""docs/command.md: every verb of `gke-ai`, from its help."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping

import click

from gke_ai.cli.verbs import gke_ai

HEAD = """<!-- Written by `make docs` from the command's help. -->
# The command gke-ai

One command for stacks on Google Cloud, stacks on the emulator, and clusters that have no stack.

```
gke-ai status --stack prod                # after the installation: on Google Cloud
gke-ai status --emulator --stack dev      # on the emulator of the current folder
emulator/run gke-ai status --stack dev    # in a checkout, without an installation
```

[own-repository.md](own-repository.md#install) installs it.

- On Google Cloud, a verb works on a stack of Pulumi: `--stack prod`, with the backend in which you are logged in.
  With `--emulator`, it works on the emulator of this machine. The make targets are these verbs on the emulator of the
  checkout: `make rehearse STACK=prod BASE=a.yaml` is `gke-ai rehearse --emulator --stack prod --base a.yaml`.
- With `--context`, a verb reads a cluster of your kubeconfig alone. It needs no Pulumi, and knows nothing of a stack.
- `rehearse`, `simulate` and `when` use a temporary emulator, so they need a checkout, or the wheel of the emulator.
  An installed package works for the current folder, which has `Pulumi.yaml`.
- Each option can also be set by a variable: `GKE_AI_STACK` for `--stack`.
- A shell completes verbs and options after `eval "$(_GKE_AI_COMPLETE=bash_source gke-ai)"`; for other shells,
  `zsh_source` or `fish_source`.

| exit code | meaning |
| --- | --- |
| 0 | done, whatever a rehearsal or a question found |
| 1 | not possible, interrupted, or something is missing or fails: `doctor`, `verify`, `smoke`, `report`, `upgrade` |
| 2 | the command is written wrong |
| 3 | a rule, a policy or the cluster refuses the change that is rehearsed, or the run that is asked about |

## Shared options

Several verbs have these options, and name them after *Shared*. The value of an option follows its name.

"""


def page() -> str:
    shared = shared_options()
    sections = (line for section in gke_ai.sections.items() for line in of_section(*section, shared))
    return "\n".join([HEAD + table(shared), *sections])


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
