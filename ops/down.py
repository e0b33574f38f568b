"""`make down STACK=…`: takes a stack down, each step awaited, and names what stays."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ops.stack import BUCKET, CLUSTER, Stack, Stop, arguments

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Destroys a stack, unless something in it is protected."""
    down(arguments(main.__doc__ or ""))


def down(stack: Stack) -> None:
    """Destroys `stack`; refuses before anything is deleted when a resource of it is protected."""
    if guarded := protected(stack.resources):
        names = "\n".join(f"  {line}" for line in guarded)
        raise Stop(
            f"{stack.name} is protected, and nothing was deleted:\n{names}\n"
            "To take it down: set `protect: false` there in the configuration, run up, then down again."
        )
    kept = [bucket["outputs"]["url"] for bucket in stack.of_type(BUCKET) if bucket.get("retainOnDelete")]
    done = stack.pulumi("destroy", "--yes", "--skip-preview", configured=True)
    if done.returncode:
        raise Stop(
            f"{stack.name} is not wholly down; what is left is still recorded.\n"
            f"Mend what is said above and run down again; after a kill, {stack.next('recover')} first."
        )
    for url in kept:
        console.print(f"Kept with its data (onDestroy: keep): {url}")


def protected(resources: list[dict[str, Any]]) -> list[str]:
    """What must not be deleted, each with the key that says so."""
    lines = []
    for resource in resources:
        name = resource.get("inputs", {}).get("name") or resource["urn"].rpartition("::")[2]
        if resource["type"] == CLUSTER and (resource.get("protect") or resource["inputs"].get("deletionProtection")):
            lines.append(f"cluster {name}: gke-ai:cluster.protect")
        elif resource.get("protect"):
            section = "gke-ai:buckets[].protect" if resource["type"] == BUCKET else "its `protect`"
            lines.append(f"{resource['type'].rpartition(':')[2].lower()} {name}: {section}")
    return lines


if __name__ == "__main__":
    try:
        main()
    except Stop as stop:
        raise SystemExit(str(stop)) from None
