"""Generates docs/policies.md from the policies."""

from __future__ import annotations

from gke_ai.review.policy.base import Policy
from gke_ai.review.policy.pack import UNDERSTOOD, UNDERSTOOD_DESCRIPTION, WAIVED, WAIVED_DESCRIPTION
from gke_ai.review.policy.rules import BY_SUBJECT

INTRODUCTION = """\
# Policies

`make docs` generates this page from `gke_ai/review/policy/`.

The policy pack checks the resources that a program registers, not the configuration of this project's program. It also
works for programs of your own that use the components.

```
pulumi preview --policy-pack policy   # on Google Cloud; pulumi up --policy-pack policy checks again before it begins
make policies STACK=prod              # on the emulator; make preview checks too
```

Pulumi runs policies only where a command names the pack: `gke-ai up`, `preview` and `report` do. In a plain
`pulumi up`, `mandatory` has no effect, unless the organization [requires the pack](#in-pulumi-cloud).

The key `gke-ai:policies` of a stack sets the effect of a violation: `mandatory` stops the deployment, `advisory` (the
default) only reports it. A policy checks each resource by itself, or *the stack* as a whole. Policies marked
*mandatory stacks* are disabled in stacks whose policies are advisory. A mandatory violation stops `pulumi up` in its
preview, before anything is created. With `--skip-preview`, Pulumi checks each resource before it creates it, and
policies of the stack only at the end.

A value that is known only after an `up` is not a violation. The `up` checks it again. Policies do not see the objects
that a Helm chart installs. `Pulumi.prod.yaml` violates no policy. The examples follow their source documents, and
`tests/graph/test_policies_of_configurations.py` lists their violations.

## In Pulumi Cloud

An organization can require the pack for every update of a stack, also in a plain `pulumi up`
([policy groups](https://www.pulumi.com/docs/discovery-governance/policy/policy-groups/)). Pulumi Cloud keeps the folder
alone, so the wheel goes into it, in a [repository of your own](own-repository.md):

```
cp wheels/gke_ai-*.whl policy/ && (cd policy && ls ./gke_ai-*.whl > requirements.txt)
cd policy && pulumi policy publish my-organization
pulumi policy enable my-organization/gke-ai latest
```

`policies` and `waivers` of each stack still decide, unless the policy group states a level for a policy. A test
publishes the pack to a stub of Pulumi Cloud and runs what it received. Nobody has published it to Pulumi Cloud.

## Waivers

A waiver names a policy, a resource and a reason. Every preview reports the waived violation with the reason. A waiver
that covers no violation is a violation itself.

```yaml
gke-ai:waivers:
  - policy: no-privileged-pods
    resource: JobSet default/multislice-*
    reason: The image needs it until its next release. The research team is responsible.
```

| policy | what it ensures |
| --- | --- |
"""


def page() -> str:
    """Returns the whole page."""
    text = INTRODUCTION
    text += f"| `{WAIVED}` | {WAIVED_DESCRIPTION}. It never stops a deployment |\n"
    text += f"| `{UNDERSTOOD}` | {UNDERSTOOD_DESCRIPTION} |\n"
    for subject, policies in BY_SUBJECT.items():
        assert subject.__doc__
        title = subject.__doc__.strip().rstrip(".")
        text += f"\n## {title}\n\n| policy | what it ensures | remedy | scope |\n| --- | --- | --- | --- |\n"
        text += "".join(f"{row(policy)}\n" for policy in policies)
    return text


def row(policy: Policy) -> str:
    """Returns a policy as a row of a table."""
    scope = [*(["the stack"] if policy.whole_stack else []), *(["*mandatory stacks*"] if policy.only_mandatory else [])]
    cells = [f"`{policy.name}`", policy.description, policy.remedy, ", ".join(scope)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
