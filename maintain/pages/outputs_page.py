"""`docs/outputs.md`: every output of a stack, from the classes of `gke_ai_outputs.model`."""

from typing import Any, get_args

from gke_ai_outputs.model import Contract, Item, keys_of, parts
from gke_ai_outputs.version import VERSION
from maintain.pages import with_parts


def page() -> str:
    sections = "".join(_part(part, path) for part, path in parts())
    version = ("currently `", "`. The minor number", VERSION)
    return with_parts("outputs.md", version, ("and the names below.\n", "", sections))


def _part(part: type[Contract | Item], path: str) -> str:
    title = "The stack" if part is Contract else f"`{path.removesuffix('.')}`"
    rows = [f"| `{key.key}` | {_type(key.annotation)} | {key.since} | {key.text} |" for key in keys_of(part)]
    text = (part.__doc__ or "").strip().splitlines()[0]
    head = "| key | is a | since | meaning |\n| --- | --- | --- | --- |\n"
    return f"\n## {title}\n\n{text}\n\n{head}" + "\n".join(rows) + "\n"


def _type(annotation: Any) -> str:
    inner = get_args(annotation)
    if not inner:
        return {str: "string", int: "integer", bool: "boolean"}[annotation]
    if annotation == dict[str, str]:
        return "map of string to string"
    return "list of string" if inner[0] is str else f"list of {inner[0].__name__}"
