"""Cloud resources of the examples are those of their documents, whole: what the program adds has its reason."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.support.recorder import PROJECT, PROJECT_NUMBER, ROOT, configuration, shared_record
from tests.support.reproduced import BUCKET, REGION

EXPECTED = ROOT / "tests" / "data" / "expected"
Object = dict[str, Any]


def file(name: str) -> Any:
    """A file of expectations."""
    return yaml.load((EXPECTED / name).read_text(), yaml.CSafeLoader)


MIXED, MULTISLICE, FLEX_START = file("cloud.yaml"), file("multislice-cloud.yaml"), file("flex-start-tpu-pools.yaml")
JETSTREAM = file("jetstream.yaml")
EXAMPLES: dict[str, list[Object]] = {
    "mixed-training-inference": [*MIXED["standard"], *MIXED["both"]],
    "mixed-training-inference-autopilot": [*MIXED["autopilot"], *MIXED["both"]],
    "cost-optimized-serving": [],
    "flex-start-tpu": FLEX_START,
    "flex-start-tpu-autopilot": [],
    "multislice-training": MULTISLICE["standard"],
    "multislice-training-autopilot": MULTISLICE["autopilot"],
    "jetstream-autoscaling": JETSTREAM["cloud"]["stackdriver"],
    "jetstream-autoscaling-prometheus": JETSTREAM["cloud"]["prometheus"],
}
BEYOND = file("beyond-the-sources.yaml")


def filled(value: Any) -> Any:
    """The documents' values with their variables filled in."""
    text = yaml.safe_dump(value).replace("jetstream-iam-sa", "prom-frontend-sa")
    variables = {"PROJECT_ID": PROJECT, "PROJECT_NUMBER": PROJECT_NUMBER, "MODEL_BUCKET": BUCKET, "REGION": REGION}
    for variable, content in variables.items():
        text = text.replace(variable, content)
    return yaml.safe_load(text)


def key_of(resource: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells a resource from others of its type."""
    names = ("name", "accountId", "bucket", "member", "role")
    return resource["type"], *(str(resource[name]) for name in names if name in resource)


def compared(example: str) -> Iterator[tuple[str, Object, Object | None]]:
    """Each registered cloud resource with that of the document, if it has one. None of the document's is missing."""
    wanted = {key_of(resource): resource for resource in filled(EXAMPLES[example])}
    for resource in shared_record(configuration(f"examples/{example}.yaml")).resources.values():
        if resource.type.startswith("gcp:"):
            registered = {"type": resource.type, **resource.inputs}
            yield resource.type.rpartition(":")[2], registered, wanted.pop(key_of(registered), None)
    assert wanted == {}


def leaves(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The fields of a resource by their path. A list is one value."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        below = f"{path}.{key}".lstrip(".")
        found |= leaves(inner, below) if isinstance(inner, dict) and inner else {below: inner}
    return found


def beyond(registered: Object, wanted: Object) -> dict[str, Any]:
    """The fields that the program adds to a resource of a document, or has with another value."""
    found, stated = leaves(registered), leaves(wanted)
    assert stated.keys() <= found.keys()
    return {path: value for path, value in found.items() if path not in stated or value != stated[path]}


@pytest.mark.parametrize("example", EXAMPLES)
def test_cloud_resources_are_those_of_the_source_and_what_is_added_is_listed(example: str) -> None:
    further = set()
    for kind, registered, wanted in compared(example):
        if wanted is None:
            further.add(f"{kind} {registered.get('name') or registered['role']}")
        else:
            listed = {path: field["values"] for path, field in BEYOND["fields"].get(kind, {}).items()}
            added = beyond(registered, wanted)
            assert {path: value for path, value in added.items() if value not in listed.get(path, [])} == {}, kind
    assert further == BEYOND["resources"].get(example, {}).keys()


def test_every_field_that_is_listed_is_added_in_an_example() -> None:
    added = [
        (kind, path, value)
        for example in EXAMPLES
        for kind, registered, wanted in compared(example)
        if wanted is not None
        for path, value in beyond(registered, wanted).items()
    ]
    rows = [(kind, path, field) for kind, fields in BEYOND["fields"].items() for path, field in fields.items()]
    assert [row for row in rows for value in row[2]["values"] if (*row[:2], value) not in added] == []
    assert all(field["because"] for _, _, field in rows)
