"""`docs/settings/`: a page for each section of a stack's configuration, from the classes of `gke_ai.settings.model`."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo

from gke_ai.catalog.section_files import PREFIX
from gke_ai.settings.model import Section, Settings, descriptions
from gke_ai.settings.reading import discriminator, section_types
from gke_ai.settings.secrets import SECRETS
from maintain.pages import with_parts
from maintain.pages.settings_keys import CONFIGURATIONS, Link, as_table, rows_of, split, table
from tests.support.repository import name_of, source

NOTE = "<!-- Written by `make docs` from gke_ai/settings/model. -->"
# The example of a page is the one whose length is closest to this, in lines.
_EXAMPLE_LINES = 10
# Pages that explain a section, relative to the folder.
GUIDES: Mapping[str, str] = {
    "buckets": "[keep the model in a bucket](../model-cache.md), [checkpoints](../checkpoints.md)",
    "queues": "[concepts](../concepts.md)",
    "serving": "[whether a model fits](../model-memory.md), [keep the model in a bucket](../model-cache.md)",
    "training": "[training jobs](../training-jobs.md), [checkpoints](../checkpoints.md)",
    "autoscaling": "[tutorial 7](../tutorials/7-vllm-autoscaling.md)",
    "gateway": "[inference gateway](../gateway.md)",
    "tenants": "[tenants](../tenants.md)",
    "waivers": "[policies](../policies.md)",
}

# A section of a page: its path below the section of the page, and its class, or the classes of its forms.
Part = tuple[str, tuple[type[Section], ...]]


def pages() -> dict[str, Callable[[], str]]:
    """Every page by its name in the folder: the front page, and one for each section."""
    sections = {
        f"{slug(key)}.md": partial(section_page, key) for key, field in _keys() if section_types(field.annotation)
    }
    return {"README.md": front_page, **sections}


def slug(key: str) -> str:
    """A key as the name of a file: `gpu-pools`."""
    return re.sub(r"(?=[A-Z])", "-", key).lower()


def link_to(section: type[Section]) -> str:
    """The link from the folder `docs/` to the keys of a class."""
    for key, field in _keys():
        roots = section_types(field.annotation)
        if section in roots:
            anchor = f"#{_anchor(_form(roots, section))}" if len(roots) > 1 else ""
            return f"settings/{slug(key)}.md{anchor}"
    key, path = next(home for classes, home in _homes().items() if section in classes)
    return f"settings/{slug(key)}.md#{_anchor(path)}"


def parts_below(roots: Sequence[type[Section]]) -> list[Part]:
    """The sections inside others, in the order in which a reader of their page meets them."""
    parts: dict[Part, None] = {}

    def visit(section: type[Section], prefix: str) -> None:
        below: list[Part] = []
        for name, field in section.model_fields.items():
            if classes := tuple(section_types(field.annotation)):
                below.append((f"{prefix}{field.alias or name}{_brackets(field)}", classes))
        for path, classes in below:
            if (path, classes) not in parts:
                parts[path, classes] = None
                for inner in classes:
                    visit(inner, f"{path}.")

    for root in roots:
        visit(root, "")
    return list(parts)


@cache
def _homes() -> Mapping[tuple[type[Section], ...], tuple[str, str]]:
    """The key of the page, and the path on it, that describe a section inside others: the first that has it."""
    homes: dict[tuple[type[Section], ...], tuple[str, str]] = {}
    for key, field in _keys():
        for path, classes in parts_below(section_types(field.annotation)):
            homes.setdefault(classes, (key, path))
    return homes


def section_page(key: str) -> str:
    field = dict(_keys())[key]
    roots = section_types(field.annotation)

    def link(classes: Sequence[type[Section]]) -> str:
        page, path = _homes()[tuple(classes)]
        return f"{'' if page == key else f'{slug(page)}.md'}#{_anchor(path)}"

    text = f"# {PREFIX}{key}\n\n{NOTE}\n\n"
    guides = f"\nSee also: {GUIDES[key]}.\n" if key in GUIDES else ""
    if len(roots) == 1:
        shape = "a list of such objects" if _brackets(field) else "an object"
        text += f"{_doc(roots[0])} The value is {shape}.\n{guides}{example(key)}\n{table(roots, link)}\n"
    else:
        forms = ", ".join(f"[`{_form(roots, root)}`](#{_anchor(_form(roots, root))})" for root in roots)
        text += f"{_meaning(key)} The value is a list. Each item has one of these forms: {forms}.\n{guides}"
        text += "".join(_forms(key, roots, link))
    parts = [(path, classes) for path, classes in parts_below(roots) if _homes()[classes] == (key, path)]
    return text + "".join(f"\n## `{path}`\n{_part(classes, link)}" for path, classes in parts)


def _forms(key: str, roots: Sequence[type[Section]], link: Link) -> Iterator[str]:
    """Each form of an item with its own keys, then the keys that several forms have alike."""
    tag, _ = discriminator(list(roots))
    shared = [row for row in rows_of(roots, link) if row.key != tag and len(row.forms) != 1]
    for root in roots:
        own = [row for row in rows_of([root], link) if not any(replace(row, forms=of.forms) == of for of in shared)]
        yield f"\n## `{_form(roots, root)}`\n\n{_doc(root)}\n{example(key, root)}\n{as_table(own)}\n"
        yield "\nIt also has the [shared keys](#shared-keys).\n"
    yield f"\n## Shared keys\n\n{as_table(shared)}\n"


def _part(classes: Sequence[type[Section]], link: Link) -> str:
    if len(classes) == 1:
        return f"\n{_doc(classes[0])}\n\n{table(classes, link)}\n"
    _, by_form = discriminator(list(classes))
    forms = "\n".join(f"- `{form}`: {_doc(section)}" for form, section in by_form.items())
    return f"\n{forms}\n\n{table(classes, link)}\n"


def front_page() -> str:
    rows = {row.key: row for row in rows_of([Settings], lambda _: "")}
    plain = [row for key, row in rows.items() if not section_types(dict(_keys())[key].annotation)]
    sections = [
        f"| [`{PREFIX}{key}`]({slug(key)}.md) | {_meaning(key)} |"
        for key, field in _keys()
        if section_types(field.annotation)
    ]
    keys = [f"| `{PREFIX}{row.key}` | {row.type} | {row.default} | {row.meaning} | `{row.example}` |" for row in plain]
    secrets = [f"| `{PREFIX}{secret.key}` | `{secret.variable}` | {secret.description} |" for secret in SECRETS]
    shown = ("gcp:project", "gcp:region", f"{PREFIX}policies", f"{PREFIX}cluster", f"{PREFIX}serving")
    blocks = _blocks(source("Pulumi.dev.yaml"))
    config = "".join(f"  {line}\n" for name in shown for line in blocks[name])
    return with_parts(
        "settings/README.md",
        ("```yaml\nconfig:\n", "```", config),
        ("| key | contents |\n| --- | --- |\n", "\n\n## Keys of the stack", "\n".join(sections)),
        ("example |\n| --- | --- | --- | --- | --- |\n", "\n\n## Keys of the provider", "\n".join(keys)),
        ("| key | variable | meaning |\n| --- | --- | --- |\n", "\n\nPulumi encrypts", "\n".join(secrets)),
    )


def example(key: str, form: type[Section] | None = None) -> str:
    """A block of a configuration of this project with the key, or with an item of one form. Empty if none has it."""
    candidates = [(path, lines) for path in CONFIGURATIONS for lines in _uses(path, key, form)]
    if not candidates:
        return ""
    path, lines = min(candidates, key=lambda candidate: abs(len(candidate[1]) - _EXAMPLE_LINES))
    name = name_of(path)
    return f"\nFrom [{name}](../../{name}):\n\n```yaml\n" + "\n".join(lines) + "\n```\n"


def _uses(path: Path, key: str, form: type[Section] | None) -> Iterator[list[str]]:
    """The key in a configuration: once for each item of a list, or as a whole."""
    block = _blocks(path).get(f"{PREFIX}{key}")
    if block is None:
        return
    document = yaml.compose("\n".join(block))
    assert isinstance(document, yaml.MappingNode)
    ((_, value),) = document.value
    if not isinstance(value, yaml.SequenceNode):
        yield block
        return
    starts = [item.start_mark.line for item in value.value]
    roots = section_types(dict(_keys())[key].annotation)
    for index, (start, item) in enumerate(zip(starts, yaml.safe_load("\n".join(block))[f"{PREFIX}{key}"], strict=True)):
        if form and form is not _class_of(item, roots):
            continue
        end = starts[index + 1] if index + 1 < len(starts) else len(block)
        yield [block[0], *block[start:end]] if start else block


def _class_of(item: Mapping[str, object], roots: Sequence[type[Section]]) -> type[Section]:
    key, by_form = discriminator(list(roots))
    return by_form[str(item.get(key, next(iter(by_form))))]


def _blocks(path: Path) -> dict[str, list[str]]:
    """The lines of each key under `config` in a file, with their comments, as if the key were at the top."""
    blocks: dict[str, list[str]] = {}
    key = ""
    for line in path.read_text().partition("\nconfig:\n")[2].splitlines():
        if named := re.match(r"  ([\w-]+:\w+):", line):
            key = named[1]
        if line.strip() and not line.startswith("  #"):
            blocks.setdefault(key, []).append(line.removeprefix("  "))
    return blocks


def _keys() -> list[tuple[str, FieldInfo]]:
    return [(field.alias or name, field) for name, field in Settings.model_fields.items()]


def _meaning(key: str) -> str:
    (text,) = (text for name, text in descriptions(Settings).items() if Settings.model_fields[name].alias == key)
    return split(text)[0]


def _brackets(field: FieldInfo) -> str:
    return "[]" if "list[" in str(field.annotation) else ""


def _form(roots: Sequence[type[Section]], section: type[Section]) -> str:
    """What a reader writes for one of several forms: `engine: vllm`."""
    key, by_form = discriminator(list(roots))
    return next(f"{key}: {form}" for form, of_form in by_form.items() if of_form is section)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _doc(section: type[Section]) -> str:
    return f"{_summary(section)} In Python: `{section.__name__}`."


def _summary(section: type[Section]) -> str:
    return " ".join((inspect.getdoc(section) or "").split())
