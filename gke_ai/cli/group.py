"""The group of all verbs, and its help: verbs in sections, each with examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gke_ai.catalog.versions import PROJECT_VERSION

# A first sentence is never cut. It wraps.
WHOLE = 1000


class Verb(click.Command):
    """A verb, with examples at the end of its help."""

    def __init__(self, name: str, *, examples: str, **named: Any) -> None:
        lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
        super().__init__(name, **{**named, "epilog": f"\b\nExamples:\n{lines}"})


class Verbs(click.Group):
    """Verbs in sections, in the order in which they are written."""

    command_class = Verb
    sections: dict[str, list[str]]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sections = {}

    def section(self, title: str) -> Callable[[str], Callable[[Callable[..., Any]], click.Command]]:
        """Returns what makes a function a verb of a section, with examples. The verb has the function's name."""
        names = self.sections.setdefault(title, [])

        def verb(examples: str) -> Callable[[Callable[..., Any]], click.Command]:
            def add(function: Callable[..., Any]) -> click.Command:
                command = self.command(examples=examples)(function)
                names.append(str(command.name))
                return command

            return add

        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs of each section."""
        for section, names in self.sections.items():
            with formatter.section(section):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(WHOLE)) for name in names])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Each option can also be set by a variable: GKE_AI_STACK for --stack.
Exit codes: 0 done; 1 not possible, interrupted, or something is missing or fails; 2 the command is written wrong;
3 a rule, a policy or the cluster refuses the change or the run.""",
)
@click.version_option(PROJECT_VERSION, prog_name="gke-ai")
def gke_ai() -> None:
    """AI infrastructure on Google Kubernetes Engine: stacks on Google Cloud, on the emulator, and clusters alone."""
