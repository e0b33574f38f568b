"""Generated pages are up to date, and the schema accepts exactly the configurations that the program accepts."""

import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema.protocols import Validator

from emulator.setup.installation import ENVIRONMENT_SECONDS
from emulator.setup.toolchain import BY_NAME, TOOLS
from gke_ai.catalog.section_files import PREFIX
from gke_ai.settings.reading import read
from gke_ai.settings.schema import schema
from maintain.pages import FOLDER
from maintain.pages.__main__ import PAGES
from maintain.pages.settings_keys import CONFIGURATIONS
from tests.support import repository
from tests.support.mistakes import of_subject
from tests.support.recorder import run_program
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def validator() -> Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    # pytest takes minutes to show the difference of two long texts.
    lines = zip_longest((FOLDER / name).read_text().splitlines(), PAGES[name]().splitlines())
    assert [pair for pair in lines if pair[0] != pair[1]][:3] == [], "run `make docs` and commit the changes"


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_configuration_meets_the_schema_and_names_it_for_editors(path: Path, validator: Validator) -> None:
    validator.validate(yaml.safe_load(path.read_text()))
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert named
    assert ((ROOT / repository.name_of(path)).parent / named[1]).resolve() == FOLDER / "stack.schema.json"


def test_schema_refuses_mistakes_in_form_and_accepts_what_is_read(validator: Validator) -> None:
    in_form = {mistake.id: not read(mistake.values)[2] for mistake in of_subject("configuration")}
    assert set(in_form.values()) == {True, False}
    for mistake in of_subject("configuration"):
        config = {f"{PREFIX}{key}": value for key, value in mistake.values.items()}
        assert validator.is_valid({"config": config}) == in_form[mistake.id], mistake.id


WRONG: dict[str, Any] = {"clutser": {"name": "llm"}, "hfToken": "plain", "policies": "sometimes", "enableApis": "yes"}


@pytest.mark.parametrize("key", WRONG)
def test_schema_refuses_wrong_keys_of_a_stack(key: str, validator: Validator) -> None:
    assert not validator.is_valid({"config": {f"gke-ai:{key}": WRONG[key]}})


def test_schema_accepts_keys_of_providers(validator: Validator) -> None:
    validator.validate({"config": {"gcp:project": "my-project", "gke-ai:hfToken": {"secure": "v1:cipher"}}})


@pytest.mark.parametrize("page", repository.tracked("**/*.md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text()):
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text()), target


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub generates them."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)}


def test_the_configuration_in_the_readme_builds_what_the_readme_lists(
    validator: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(block.splitlines()) <= 18
    content = yaml.safe_load(block)
    deployed = yaml.safe_load(repository.source("Pulumi.dev.yaml").read_text())
    assert part_of(content, deployed), "make up deploys it"
    assert not part_of({"config": {"gke-ai:cluster": {"mode": "standard"}}}, deployed)
    validator.validate(content)
    record = run_program(content["config"], True, monkeypatch)
    for component in ("GkeCluster", "KueueStack", "VllmServer", "FinetuneJob"):
        assert len(record.all(component)) == 1, component
    assert record.one("Cluster").inputs["enableAutopilot"]
    priorities = sorted(priority.inputs["metadata"]["name"] for priority in record.all("PriorityClass"))
    assert priorities == ["serving", "training"]
    quotas = record.one("ClusterQueue").inputs["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert {quota["name"]: quota["nominalQuota"] for quota in quotas}["nvidia.com/gpu"] == "4"
    server, job = record.one("Deployment").inputs["spec"], record.one("Job").inputs["spec"]
    assert [server["replicas"], job["parallelism"]] == [1, 2]
    containers = [pods["template"]["spec"]["containers"][0] for pods in (server, job)]
    assert [int(container["resources"]["limits"]["nvidia.com/gpu"]) for container in containers] == [2, 1]


def part_of(part: Any, whole: Any) -> bool:
    """Whether all keys and items of nested data are in other data."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and part_of(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(part_of(item, other) for other in whole) for item in part)
    return bool(part == whole)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1100


def test_the_pages_say_how_long_tools_are_built() -> None:
    first_up = sum(
        BY_NAME[name].seconds for name in ("kubernetes", "etcd", "kwok", "pulumi", "helm", "kueue", "jobset")
    )
    assert 15 < (first_up + ENVIRONMENT_SECONDS) / 60 < 20
    assert "in twenty minutes on two cores" in (ROOT / "README.md").read_text()
    whole = sum(tool.seconds for tool in TOOLS) + ENVIRONMENT_SECONDS
    assert f"every tool, in about {round(whole / 600)}0 minutes on two cores" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_front_page_lists_every_page() -> None:
    front = (FOLDER / "README.md").read_text()
    pages = {path.name for path in FOLDER.glob("*.md")} - {"README.md", "rehearsal-comment.md"}
    assert {name for name in pages if f"({name})" not in front} == set()
