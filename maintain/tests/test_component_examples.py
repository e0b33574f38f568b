"""The example in the documentation of each component works as it stands."""

import re

import pulumi
import pytest

from gke_ai.components import every_component
from gke_ai.components.base import Component
from maintain.pages.components_page import PRELUDE, example_of
from tests.support.recorder import PROJECT, record


@pytest.mark.parametrize("component", every_component(), ids=lambda component: component.__name__)
def test_the_example_of_a_component_works(component: type[Component], monkeypatch: pytest.MonkeyPatch) -> None:
    example = example_of(component)
    pulumi.runtime.set_all_config({"gcp:project": PROJECT, "project:kubeconfig": "k", "gke-ai:kubeconfig": "k"})
    found = record(lambda: exec(f"{PRELUDE}\n{example}", {}), False, monkeypatch)
    names = re.findall(rf'{component.__name__}\(\s*"([^"]+)"', example)
    assert {item.name for item in found.all(component.__name__)} >= {*names} != set()
