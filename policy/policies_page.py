"""docs/policies.md, from the policies themselves."""

from __future__ import annotations

from types import ModuleType

from policy.base import Policy
from policy.pack import UNDERSTOOD, UNDERSTOOD_DESCRIPTION, WAIVED, WAIVED_DESCRIPTION
from policy.rules import accelerators, access, cloud, data, pods

SUBJECTS: tuple[ModuleType, ...] = (accelerators, pods, data, cloud, access)

INTRODUCTION = """\
# Policies

Made by `make docs` from `policy/`; edit it there.

What a platform engineer wants to hold in every stack, asked of the resources that a program registers, not of this
program's configuration: it holds for programs that compose the components otherwise too.

```
pulumi preview --policy-pack policy   # on Google Cloud; pulumi up --policy-pack policy asks again before it begins
make policies STACK=prod              # on the emulator; make preview asks too
```

`gke-ai:policies` of a stack says what a violation does: `mandatory` stops the deployment, `advisory` (the default)
tells it. Those marked *mandatory stacks* are silent in stacks whose policies are advisory. A mandatory violation stops
`pulumi up` in its preview, so nothing is made; with `--skip-preview` each resource is asked about before it is made,
and the policies that are asked of the stack only at the end.

A value that is known only after an `up` is no violation: it is asked about again in the `up`. What a Helm chart
installs is not seen. `Pulumi.prod.yaml` violates none; what the examples leave open, as the documents that they follow
do, stands in `tests/test_policies_of_configurations.py`.

## Exceptions

An exception names a policy, a resource and a reason; the reason is told at every preview. One that lets nothing pass is
a violation itself.

```yaml
gke-ai:waivers:
  - policy: no-privileged-pods
    resource: JobSet default/multislice-*
    reason: The image needs it until its next release; the research team answers for it.
```

| policy | what holds |
| --- | --- |
"""


def page() -> str:
    """The whole page."""
    text = INTRODUCTION
    text += f"| `{WAIVED}` | {WAIVED_DESCRIPTION}; never stops a deployment |\n"
    text += f"| `{UNDERSTOOD}` | {UNDERSTOOD_DESCRIPTION} |\n"
    for subject in SUBJECTS:
        assert subject.__doc__
        title = subject.__doc__.strip().rstrip(".")
        text += f"\n## {title}\n\n| policy | what holds | remedy | asked of |\n| --- | --- | --- | --- |\n"
        policies: tuple[Policy, ...] = subject.POLICIES
        text += "".join(f"{row(policy)}\n" for policy in policies)
    return text


def row(policy: Policy) -> str:
    """A policy as a line of a table."""
    scope = "the stack" if policy.whole_stack else "each resource"
    scope += ", *mandatory stacks*" if policy.only_mandatory else ""
    cells = [f"`{policy.name}`", policy.description, policy.remedy, scope]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
