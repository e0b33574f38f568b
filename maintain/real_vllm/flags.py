"""`python -m maintain.real_vllm.flags`: asks the parser of the pinned vLLM for flags, and for verdicts on arguments.

It writes gke_ai/catalog/engines/vllm_flags.json, and the verdicts of tests/data/vllm_arguments.yaml. It prints each
flag of which it cannot describe the values that vLLM accepts: the program then accepts any. For another release, run
`python -m maintain.real_vllm.lock RELEASE` before.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from pydantic_core import SchemaValidator

from gke_ai.settings.engine.arguments import value_of
from maintain.real_vllm import environment, parser

ROOT = Path(__file__).parents[2]
FLAGS, LINES = ROOT / "gke_ai/catalog/engines/vllm_flags.json", ROOT / "tests/data/vllm_arguments.yaml"
Object = dict[str, Any]

TEXTS = (
    *("word", "1", "0", "-1", "2", "3", "16", "95", "100000", "1.5", "0.5", "1e3", "1k", "1K", "1.5K", "25.6k", " 1"),
    *("1_000", "", "None", "none", "null", "auto", "AUTO", "true", "nan", "inf", "fp16", "image=5", "'image=5'"),
    *("[1]", '"a"', '["a"]', "{}", "{a: 1}", "[1k]", "'{}'"),
)
VALUES: tuple[object, ...] = (
    *(0, 1, -1, 2, 100000, 1.5, "word", "1", "", None, True, False, [], {}, [1], ["a"], {"a": 1}, {"a": "b"}),
    {"a": {"b": 1}},
)
# Schemas of values in JSON, of which the first is taken that accepts what vLLM accepts.
TEXT, INTEGER = {"type": "str"}, {"type": "int"}
# A number of items, or their dimensions, as for --limit-mm-per-prompt.
ITEMS: Object = {
    "type": "union",
    "choices": [{"type": "int", "ge": 0, "strict": True}, {"type": "bool", "strict": True}, {"type": "dict"}],
    "custom_error_type": "items",
    "custom_error_message": "Input should be a number of items, or an object",
}
OBJECTS: tuple[Object, ...] = (
    *({"type": "dict", "values_schema": INTEGER}, {"type": "dict", "values_schema": TEXT}),
    *({"type": "dict", "values_schema": {"type": "dict"}}, {"type": "dict", "values_schema": ITEMS}, {"type": "dict"}),
)
PLAIN: tuple[Object, ...] = (
    *(INTEGER, {"type": "float"}, {"type": "bool"}, TEXT),
    *({"type": "list", "items_schema": INTEGER}, {"type": "list", "items_schema": TEXT}, {"type": "list"}),
    *OBJECTS,
)
ANY = {"type": "any"}
# Flags whose values vLLM looks up when it starts, with the flag that adds names, and the one without which it does not.
LATER: Mapping[str, Mapping[str, object]] = {
    "load-format": {},
    "reasoning-parser": {"unless": "reasoning-parser-plugin", "optional": True},
    "tool-call-parser": {"unless": "tool-parser-plugin", "with": "enable-auto-tool-choice", "optional": True},
}
ABOUT = (
    "Written by `python -m maintain.real_vllm.flags`: the flags of `vllm serve`, as its own parser has them. "
    "kind: how a text becomes a value (gke_ai/settings/engine/arguments.py); schema: of pydantic, for the value; "
    "optional: it may be empty or None; takes: how many values, if not one; names: other names; needs, with, unless: "
    "other flags."
)
# vLLM ends once it has printed its help.
HELP: Object = {
    "type": "custom-error",
    "schema": {"type": "none"},
    "custom_error_type": "help",
    "custom_error_message": "It prints the help, and the server ends",
}


def main() -> None:
    rows = yaml.safe_load(LINES.read_text())
    answer = ask([row["line"] for row in rows])
    flags = {flag["name"].removeprefix("--"): described(flag) for flag in answer["flags"]}
    for name, more in LATER.items():
        flags[name] = {"schema": {"type": "literal", "expected": answer["names"][name]}, **more}
    flags["help"] = {"names": ["-h"], "takes": "nothing", "schema": HELP}
    release = environment.versions()[environment.PACKAGE]
    (wheel,) = re.findall(rf"^{environment.PACKAGE}==\S+ --hash=(\S+)", environment.LOCK.read_text(), re.M)
    about = {"about": ABOUT, "release": release, "wheel": f"{environment.PACKAGE} {wheel}"}
    lines = (f"{json.dumps(name)}: {json.dumps(flag)}" for name, flag in sorted(flags.items()))
    FLAGS.write_text(f'{json.dumps(about)[:-1]}, "flags": {{\n' + ",\n".join(lines) + "\n}}\n")
    text = LINES.read_text().partition("- ")[0]
    for row, verdict in zip(rows, answer["verdicts"], strict=True):
        refused = re.sub(r" at 0x[0-9a-f]+", "", " ".join(verdict.split()))[:160]
        flow = yaml.safe_dump({**row, "refused": refused}, default_flow_style=True, sort_keys=False, width=10**6)
        text += f"- {flow.strip()}\n"
    LINES.write_text(text)
    print(f"Wrote {FLAGS} and {LINES}")


def ask(lines: list[list[str]]) -> Object:
    folder = environment.create()
    objects = [json.dumps({"a": value}) for value in VALUES]
    asked = json.dumps({"texts": [*TEXTS, *objects], "values": VALUES, "lines": lines})
    with TemporaryDirectory(prefix="vllm-") as home:
        command = [str(folder / "bin" / "python"), parser.__file__]
        variables = environment.variables(folder, Path(home))
        done = subprocess.run(command, env=variables, input=asked, stdout=subprocess.PIPE, text=True, check=True)
    answer: Object = json.loads(done.stdout.splitlines()[-1])
    return answer


def described(flag: Mapping[str, Any]) -> Object:
    """A flag as the file has it: it accepts each text that vLLM accepts, and the fewest of the others."""
    names = [name for name in flag["names"] if name != flag["name"] and not name.startswith("--no-")]
    common: Object = {"names": names} if names else {}
    if flag["takes"] is not None:
        common["takes"] = flag["takes"]
    if "refused" not in flag:
        needed = re.search(r"requires --([a-z-]+)", flag["alone"])
        return common | ({"needs": needed[1]} if needed else {})
    best: Object = {}
    excess = [*flag["refused"]]
    for form in forms(flag):
        taken = [text for text in flag["refused"] if accepts(form, text)]
        wrong = [text for text in taken if flag["refused"][text]]
        if len(taken) - len(wrong) == [*flag["refused"].values()].count("") and len(wrong) < len(excess):
            best, excess = form, wrong
    if excess:
        print(f"{flag['name']}: vLLM refuses {excess}, the program does not")
    return common | best


def accepts(form: Mapping[str, Any], text: str) -> bool:
    try:
        value_of(form, text)
    except ValueError:
        return False
    return True


def forms(flag: Mapping[str, Any]) -> Iterator[Object]:
    """Descriptions of the values of a flag, the most frequent first."""
    accepted = [name for name in (*flag["choices"], "auto", "none") if name != "None" and not flag["refused"][name]]
    literals: list[Object] = []
    for kind, expected in (
        ("text", accepted),
        ("upper", [name.upper() for name in accepted]),
        ("lower", [name.lower() for name in accepted]),
        ("integer", [int(name) for name in accepted if name.isdigit()]),
    ):
        if expected:
            literals.append({"kind": kind, "schema": {"type": "literal", "expected": list(dict.fromkeys(expected))}})
    numbers = [
        {"kind": kind, "schema": {"type": "float" if kind == "number" else "int", **bounds}}
        for kind, bounds in product(("integer", "number", "size", "length"), (flag["bounds"], {"ge": 0}, {"ge": 1}))
    ]
    keyed = [keys_of(flag["keys"])] if flag["keys"] else []
    objects = [
        {"kind": kind, "schema": nullable(schema, null)}
        for kind, null, schema in product(("json", "json with sizes"), (False, True), (*keyed, *OBJECTS))
        if (kind == "json with sizes") == reads_sizes(flag)
    ]
    for form in [{}, *(literals if accepted else []), *numbers, {"kind": "json"}, *objects]:
        form = {key: value for key, value in form.items() if value != "text"}
        if "schema" in form and [*form["schema"]] == ["type"] and form["schema"]["type"] in ("int", "float"):
            del form["schema"]
        yield form
        yield {"optional": True, **form}


def reads_sizes(flag: Mapping[str, Any]) -> bool:
    """Whether numbers in the JSON of a flag may end with a suffix: then `[1k]` is JSON, but no object."""
    reason = flag["refused"]["[1k]"]
    return "validation error" in reason and "Invalid JSON" not in reason


def nullable(schema: Object, null: bool) -> Object:
    return {"type": "nullable", "schema": schema} if null else schema


def keys_of(keys: Mapping[str, Any]) -> Object:
    """The schema of an object with these keys and no others."""
    fields = {
        name: {"type": "typed-dict-field", "required": False, "schema": schema_of(key)} for name, key in keys.items()
    }
    return {"type": "typed-dict", "extra_behavior": "forbid", "fields": fields}


def schema_of(key: Mapping[str, Any]) -> Object:
    """The schema of the values of a key: the first that accepts just what vLLM accepts; else any."""
    literal = [{"type": "literal", "expected": key["choices"]}] if "choices" in key else []
    nested = [keys_of(key["keys"])] if "keys" in key else []
    for null, schema in product((False, True), (*nested, *PLAIN, *literal)):
        form = nullable({**schema, **key["bounds"]} if schema["type"] in ("int", "float") else schema, null)
        if [*map(SchemaValidator(form).isinstance_python, VALUES)] == key["accepted"]:
            return form
    return ANY


if __name__ == "__main__":
    main()
