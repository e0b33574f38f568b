"""What components and the program register, by tests/data/expected/registered: a file a subject, a sentence a case.

A row builds a component (`build`, `with`), or runs the program with a good configuration (`stack`), an `example`, with
changes (`put`, `drop`), or the example of a gateway with some of its keys (`gateway`). Of one resource (`of`: its kind,
and its name if there are several) it states inputs (`has`), inputs that must not be there (`lacks`), options (`is`,
`ignores`) and what it waits for (`waits`). `none` are kinds of which nothing is registered, `names` the names of all
resources of a kind.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from gke_ai import components
from gke_ai.catalog.section_files import PREFIX
from tests.support.examples import gateway_example
from tests.support.mistakes import base, changed_by
from tests.support.recorder import ROOT, Record, configuration, shared_record

FOLDER = ROOT / "tests" / "data" / "expected" / "registered"
MISSING = object()
PATHS = {
    "$pod": "spec.template.spec",
    "$container": "spec.template.spec.containers.0",
    "$job": "spec.replicatedJobs.0.template.spec",
    "$manager": "values.managerConfig.controllerManagerConfigYaml",
}


def rows() -> Iterator[Any]:
    """Each row, with the inputs that every build of its component has."""
    for file in sorted(FOLDER.glob("*.yaml")):
        content = yaml.load(file.read_text(), yaml.CSafeLoader)
        for sentence, cases in content["cases"].items():
            for row in cases:
                yield pytest.param(content.get("bases", {}), row, id=sentence)


def at(value: Any, path: str) -> Any:
    """The value at `a.0.b`. An item of a list may be named by its `name`, and text is read as YAML."""
    for alias, whole in PATHS.items():
        path = path.replace(alias, whole)
    for step in path.split("."):
        if isinstance(value, str):
            value = yaml.safe_load(value)
        if isinstance(value, list):
            value = dict(enumerate(value)) if step.isdigit() else {item.get("name"): item for item in value}
        value = value.get(int(step) if step.isdigit() and int(step) in value else step, MISSING)
        if value is MISSING:
            break
    return value


def recorded(row: dict[str, Any], bases: dict[str, Any], build: Callable[..., Record]) -> Record:
    """The record of the component, or of the program, that a row is about."""
    if "build" in row:
        return build(getattr(components, row["build"]), bases[row["build"]], **row.get("with", {}))
    if "gateway" in row:
        return shared_record(gateway_example(row["gateway"]), row.get("preview", False))
    if "stack" in row:
        values = base(*row["stack"].split("."))
    else:
        config = configuration(f"examples/{row['example']}.yaml")
        values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    changed_by(row)(values)
    return shared_record({PREFIX + key: value for key, value in values.items()}, row.get("preview", False))


@pytest.mark.parametrize(("bases", "row"), list(rows()))
def test_registered(bases: dict[str, Any], row: dict[str, Any], build: Callable[..., Record]) -> None:
    record = recorded(row, bases, build)
    for kind in row.get("none", ()):
        assert not record.all(kind), kind
    for kind, names in row.get("names", {}).items():
        assert sorted(resource.object_name for resource in record.all(kind)) == sorted(names), kind
    if "of" not in row:
        return
    resource = record.one(*row["of"].split())
    for path, value in row.get("has", {}).items():
        assert at(resource.inputs, path) == value, path
    for path in row.get("lacks", ()):
        assert at(resource.inputs, path) is MISSING, path
    for option, value in row.get("is", {}).items():
        found = getattr(resource, option)
        assert (list(found) if isinstance(found, tuple) else found) == value, option
    assert {*row.get("ignores", ())} <= {*resource.ignored}
    assert {*row.get("waits", ())} <= record.waits_for(resource)
