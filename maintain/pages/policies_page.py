"""Generates docs/policies.md from the policies."""

from gke_ai.review.policy.base import Policy
from gke_ai.review.policy.pack import UNDERSTOOD, UNDERSTOOD_DESCRIPTION, WAIVED, WAIVED_DESCRIPTION
from gke_ai.review.policy.rules import BY_SUBJECT
from maintain.pages import with_parts


def page() -> str:
    text = f"| `{WAIVED}` | {WAIVED_DESCRIPTION}. It never stops a deployment |\n"
    text += f"| `{UNDERSTOOD}` | {UNDERSTOOD_DESCRIPTION} |\n"
    for subject, policies in BY_SUBJECT.items():
        assert subject.__doc__
        title = subject.__doc__.strip().rstrip(".")
        text += f"\n## {title}\n\n| policy | what it ensures | remedy | scope |\n| --- | --- | --- | --- |\n"
        text += "".join(f"{row(policy)}\n" for policy in policies)
    return with_parts("policies.md", ("| policy | what it ensures |\n| --- | --- |\n", "", text))


def row(policy: Policy) -> str:
    scope = [*(["the stack"] if policy.whole_stack else []), *(["*mandatory stacks*"] if policy.only_mandatory else [])]
    cells = [f"`{policy.name}`", policy.description, policy.remedy, ", ".join(scope)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
