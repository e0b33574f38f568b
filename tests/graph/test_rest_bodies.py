"""The REST bodies of the program's cloud resources, against Google's reference and discovery documents."""

import json
from typing import Any

import pytest

from tests.support.recorder import ROOT
from tests.support.registered import cloud_requests

EXAMPLES = ["examples/mixed-training-inference.yaml", "examples/mixed-training-inference-autopilot.yaml"]
CONFIGURATIONS = [*EXAMPLES, "Pulumi.dev.yaml", "Pulumi.prod.yaml"]


def includes(whole: Any, part: Any) -> bool:
    """Whether `whole` contains everything in `part`."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and includes(whole[name], part[name]) for name in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(includes, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_program_sends_google_the_request_of_the_tutorials_commands(path: str) -> None:
    expected = json.loads((ROOT / "tests/data/golden/rest_mixed_training_inference.json").read_text())[path]
    requests = [(name, resource.body(inputs)) for resource, name, inputs in cloud_requests(path)]
    bodies = {name: body.content for name, body in requests if body is not None}
    assert bodies.keys() == expected.keys()
    for name, wanted in expected.items():
        assert includes(bodies[name], wanted), (name, bodies[name])


@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_google_refuses_nothing_of_the_program(path: str) -> None:
    requests = cloud_requests(path)
    assert requests
    for resource, name, inputs in requests:
        assert list(resource.problems(inputs)) == [], name
