"""`docs/outputs.md`: every output of a stack, from the classes of `outputs.model`."""

from __future__ import annotations

from typing import Any, get_args

from outputs.model import VERSION, Contract, Item, parts, since_of

HEAD = f"""# Outputs

<!-- Written by `make docs` from outputs/model.py. -->

What a stack gives to other programs. It is a contract: its version is the output `version`, MAJOR.MINOR, now
`{VERSION}`. The minor number goes up when keys are added; none is taken away, renamed or given another meaning without
a new major number. *Since* is the version that brought a key. What there is none of is an empty text, list or mapping,
so a key that is missing altogether means an older stack.

No output is a secret, and none may become one: whoever may read a stack's outputs reads them all. `kubeconfig` holds no
credential; who may do what in the cluster is decided by IAM and RBAC for whoever uses it.

A Python program reads them typed, with an error that names what is missing, its version and the remedy:

```python
from outputs import StackOutputs

platform = StackOutputs("my-organization/gke-ai/prod")
queue = platform.queue(namespace="research")  # an Output of a Queue; queue.local_queue is one of a text
server = platform.server("gemma")  # server.url
cluster = platform.provider()  # a Kubernetes provider from the kubeconfig
```

[examples/consumer](../examples/consumer/README.md) is a whole program of another team. The view needs nothing else of
this project: `pip install "gke-ai-outputs @ git+https://…/gke-ai.git#subdirectory=outputs"`. Programs in other
languages use Pulumi's `StackReference` and the names below.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_part(item_type, path) for item_type, path in parts())


def _part(item_type: type[Item], path: str) -> str:
    title = "The stack" if item_type is Contract else f"`{path.removesuffix('.')}`"
    rows = [
        f"| `{field.alias}` | {_type(field.annotation)} | {since_of(item_type, name)} | {field.description} |"
        for name, field in item_type.model_fields.items()
    ]
    text = (item_type.__doc__ or "").strip().splitlines()[0]
    head = "| key | is a | since | meaning |\n| --- | --- | --- | --- |\n"
    return f"\n## {title}\n\n{text}\n\n{head}" + "\n".join(rows) + "\n"


def _type(annotation: Any) -> str:
    """The type of a value in plain words."""
    inner = get_args(annotation)
    if not inner:
        return {str: "text", int: "whole number"}[annotation]
    if annotation == dict[str, str]:
        return "mapping of texts"
    return "list of texts" if inner[0] is str else f"list of {inner[0].__name__}"
