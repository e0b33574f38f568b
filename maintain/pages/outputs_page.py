"""`docs/outputs.md`: every output of a stack, from the classes of `gke_ai_outputs.model`."""

from __future__ import annotations

from typing import Any, get_args

from gke_ai_outputs.model import Contract, Item, keys_of, parts
from gke_ai_outputs.version import VERSION

HEAD = f"""# Outputs

<!-- Written by `make docs` from gke_ai_outputs/model.py. -->

A stack exports these outputs for other programs. They are a contract. The output `version` has its version,
MAJOR.MINOR, currently `{VERSION}`. The minor number increases when keys are added. A key is removed, renamed or given
another meaning only with a new major number. *Since* is the version that added a key. An output without a value is an
empty string, list or map, so a missing key means that an older version deployed the stack.

No output is a secret, because everybody who can read a stack's outputs can read all of them. `kubeconfig` contains no
credential: IAM and RBAC decide what its user is allowed to do in the cluster.

In Python, a typed view reads the outputs. If an output is missing, its error names the output, its version and the
remedy:

```python
from gke_ai_outputs import StackOutputs

platform = StackOutputs("my-organization/gke-ai/prod")
queue = platform.queue(namespace="research")  # an Output[Queue]; queue.local_queue is an Output[str]
server = platform.server("gemma")  # server.url
cluster = platform.provider()  # a Kubernetes provider from the kubeconfig
```

If the platform's cluster is created again, `clusterIdentifier` changes, and the next update of a program with this
provider creates its objects in the new cluster. Set `PULUMI_K8S_DELETE_UNREACHABLE=true` for that update, because
nobody can delete the objects of the old one. In other languages, pass the output to the provider under that name.

[examples/consumer](../examples/consumer/README.md) is a complete program of another team. The view needs no other part
of this project:

```
pip install "gke-ai-outputs @ git+https://…/gke-ai.git#subdirectory=gke_ai_outputs"
```

Programs in other languages use Pulumi's `StackReference` and the names below.
"""


def page() -> str:
    """The page as Markdown."""
    return HEAD + "".join(_part(part, path) for part, path in parts())


def _part(part: type[Contract | Item], path: str) -> str:
    title = "The stack" if part is Contract else f"`{path.removesuffix('.')}`"
    rows = [f"| `{key.key}` | {_type(key.annotation)} | {key.since} | {key.text} |" for key in keys_of(part)]
    text = (part.__doc__ or "").strip().splitlines()[0]
    head = "| key | is a | since | meaning |\n| --- | --- | --- | --- |\n"
    return f"\n## {title}\n\n{text}\n\n{head}" + "\n".join(rows) + "\n"


def _type(annotation: Any) -> str:
    """The type of a value in plain words."""
    inner = get_args(annotation)
    if not inner:
        return {str: "string", int: "integer", bool: "boolean"}[annotation]
    if annotation == dict[str, str]:
        return "map of string to string"
    return "list of string" if inner[0] is str else f"list of {inner[0].__name__}"
