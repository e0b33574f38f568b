"""What a member of a tenant can write, read from the sources of the pinned releases, and the verdict on each.

A field is named by its struct, such as `core.PodSpec.nodeName`: it stands wherever the struct does. Verdicts are in
`tenant_matrix.yaml`.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from emulator.machine.paths import ROOT
from emulator.setup.go_build import sources
from emulator.setup.toolchain import KUBERAY, KUBERNETES, KUEUE, TRAINER
from gke_ai.components.queues.tenant import rules
from gke_ai.components.queues.tenant_policy import FURTHER_KINDS

Object = dict[str, Any]


class Field(NamedTuple):
    """A field of a struct: its name in JSON (none if it is inline), and the struct that it holds, if any."""

    name: str
    struct: str
    is_list: bool


# Packages with structs: the module that pins them, its name, the folder.
PACKAGES = {
    "core": (KUBERNETES, "k8s.io/api", "core/v1"),
    "batch": (KUBERNETES, "k8s.io/api", "batch/v1"),
    "apps": (KUBERNETES, "k8s.io/api", "apps/v1"),
    "autoscaling": (KUBERNETES, "k8s.io/api", "autoscaling/v2"),
    "policy": (KUBERNETES, "k8s.io/api", "policy/v1"),
    "meta": (KUBERNETES, "k8s.io/apimachinery", "pkg/apis/meta/v1"),
    "jobset": (KUEUE, "sigs.k8s.io/jobset", "api/jobset/v1alpha2"),
    "trainer": (TRAINER, "github.com/kubeflow/trainer/v2", "pkg/apis/trainer/v1alpha1"),
    "ray": (KUBERAY, "github.com/ray-project/kuberay/ray-operator", "apis/ray/v1"),
}
TABLE: dict[str, Any] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)
# The struct of each kind that a member may write.
KINDS: dict[str, str] = TABLE["kinds"]
MONITORING = ROOT / "emulator" / "cluster" / "crds" / "podmonitorings.yaml"
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r'^\t(?:(\w+)[ \t]+)?([^\s`/]+)[ \t]+`[^`]*json:"([^",]*)([^"]*)"', re.M)
_IMPORT = re.compile(r'^\t(?:(\w+) )?"([\w./-]+)"$', re.M)


@cache
def structs() -> dict[str, list[Field]]:
    found: dict[str, list[Field]] = {}
    folders = {f"{name}/{folder}": package for package, (_, name, folder) in PACKAGES.items()}
    for package, (module, name, folder) in PACKAGES.items():
        for path in sorted((sources(module, name) / folder).glob("*.go")):
            if not path.name.startswith("zz_") and "generated" not in path.name and "_test." not in path.name:
                found |= structs_of(path.read_text(), package, folders)
    (version,) = yaml.load(MONITORING.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    return found | structs_of_schema(version["schema"]["openAPIV3Schema"], KINDS["PodMonitoring"])


def structs_of_schema(schema: Object, name: str) -> dict[str, list[Field]]:
    """An object of a schema and its parts, named by the path to each."""
    found: dict[str, list[Field]] = {name: []}
    for field, kind in schema["properties"].items():
        inner = kind.get("items", kind)
        is_part = "properties" in inner
        found |= structs_of_schema(inner, f"{name}-{field}") if is_part else {}
        struct = "meta.ObjectMeta" if field == "metadata" else f"{name}-{field}" if is_part else ""
        if field not in ("apiVersion", "kind", "status"):
            found[name].append(Field(field, struct, "items" in kind))
    return found


def structs_of(text: str, package: str, folders: dict[str, str]) -> dict[str, list[Field]]:
    """The structs that a file declares. `folders` has the packages by the path of an import."""
    imported = {
        alias or path.rpartition("/")[2]: folders[path] for alias, path in _IMPORT.findall(text) if path in folders
    }

    def field(go_type: str, name: str) -> Field:
        plain = go_type.replace("*", "")
        prefix, dot, short = plain.removeprefix("[]").rpartition(".")
        holds = "" if plain.startswith("map[") else f"{imported.get(prefix, '') if dot else package}.{short}"
        return Field(name, holds, plain.startswith("[]"))

    return {
        f"{package}.{struct}": [
            field(go_type, name)
            for named, go_type, name, rest in _FIELD.findall(body)
            if name != "-" and (name or not named or "inline" in rest)
        ]
        for struct, body in _STRUCT.findall(text)
    }


class Verdict(NamedTuple):
    """What becomes of a field: the words of its refusal and an example, or the reason why it gains nothing."""

    section: str
    reason: str
    value: Any
    kinds: frozenset[str]
    is_top: bool  # only in the metadata of the object itself


class Step(NamedTuple):
    """A step to a field in an object: the field, and its name with its struct."""

    field: str
    name: str
    is_list: bool


Place = tuple[Step, ...]
ATTACKS = ("never", "refused", "refused_later")


def verdicts() -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for section in (*ATTACKS, "bounded", "free"):
        for reason, entries in TABLE[section].items():
            for key, value in entries.items():
                name, _, kinds = key.removeprefix("^").partition("@")
                names = [name] if section in ATTACKS else [f"{name}.{field}" for field in value.split()]
                of_kinds = frozenset(kinds.split(",") if kinds else KINDS)
                verdict = Verdict(section, reason, value, of_kinds, key.startswith("^"))
                for field in names:
                    found.setdefault(field, []).append(verdict)
    return found


def places_in(known: dict[str, list[Field]]) -> dict[str, dict[str, list[Place]]]:
    """Where each field of these structs stands, by its name and kind."""
    found: dict[str, dict[str, list[Place]]] = {}
    judged = verdicts()

    def walk(kind: str, struct: str, path: Place, above: tuple[str, ...]) -> None:
        for field in known.get(struct, []):
            if field.struct == "meta.TypeMeta" or (field.name == "status" and field.struct in known):
                continue
            here, name = path, f"{struct}.{field.name}"
            if field.name:
                here = (*path, Step(field.name, name, field.is_list))
                found.setdefault(name, {}).setdefault(kind, []).append(here)
                if any(verdict.section == "never" for verdict in judged.get(name, [])):
                    continue
            if field.struct in known and field.struct not in above:
                walk(kind, field.struct, here, (*above, field.struct))

    for kind, struct in KINDS.items():
        walk(kind, struct, (), (struct,))
    return found


@cache
def places() -> dict[str, dict[str, list[Place]]]:
    """Where each field of the pinned releases stands."""
    return places_in(structs())


def missing(known: dict[str, list[Field]]) -> dict[str, list[str]]:
    """Fields without a verdict, and verdicts without a field, by kind."""
    standing, judged = places_in(known), verdicts()
    lacking: dict[str, list[str]] = {}
    for name in standing.keys() - judged.keys():
        for kind in standing[name]:
            lacking.setdefault(kind, []).append(name)
    superfluous = sorted(judged.keys() - standing.keys())
    return {kind: sorted(names) for kind, names in lacking.items()} | ({"nothing": superfluous} if superfluous else {})


OPTIONS: dict[str, Any] = TABLE["options"]
REQUESTS = ("CreateOptions", "UpdateOptions", "PatchOptions", "DeleteOptions")


def options() -> set[str]:
    return {field.name for request in REQUESTS for field in structs()[f"meta.{request}"] if field.name}


def judged_options() -> set[str]:
    refused = {key.partition("@")[0] for keys in OPTIONS["refused"].values() for key in keys}
    return refused | {name for names in OPTIONS["free"].values() for name in names.split()}


_NAME = re.compile(r'"((?:[a-z0-9-]+\.)*(?:kubernetes|k8s)\.io/(?:[A-Za-z0-9][\w.-]*)?)"')
_PREFIXED = re.compile(r'\b(\w+) \+ "([A-Za-z0-9][\w.-]*)"')
_PREFIX = re.compile(r'\b(\w+)\s*=\s*"([a-z0-9.-]*(?:kubernetes|k8s)\.io/)"')


@cache
def names() -> set[str]:
    """Names of the domains of Kubernetes that programs read from labels and annotations."""
    found: set[str] = set()
    for module, folders in TABLE["readers"].items():
        for folder in folders:
            lines: list[str] = []
            for path in (sources(KUBERNETES, module) / folder).rglob("*.go"):
                if not path.name.endswith("_test.go") and not {"test", "testing", "testdata"} & set(path.parts):
                    lines += [line.partition(" // ")[0] for line in path.read_text().splitlines()]
            text = "\n".join(line for line in lines if not line.lstrip().startswith("//") and not _IMPORT.match(line))
            prefixes = dict(_PREFIX.findall(text))
            found |= {name for name in _NAME.findall(text) if not name.endswith("/")}
            found |= {prefixes[start] + name for start, name in _PREFIXED.findall(text) if start in prefixes}
    return found


def written() -> set[str]:
    writes = {"create", "update", "patch", "delete"}
    plain: list[dict[str, list[str]]] = json.loads(json.dumps(rules(list(FURTHER_KINDS))))
    return {resource for rule in plain if writes & {*rule["verbs"]} for resource in rule["resources"]}
