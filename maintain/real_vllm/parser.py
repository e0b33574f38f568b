"""Asks the parser of a real vLLM. `maintain.real_vllm.arguments` runs this file in the environment of vLLM.

Standard input has values to try and lines of arguments. The answer, as JSON, has each flag with the values that it
accepts, and the verdict on each line. Both take what the parser refuses, and what the configuration classes refuse that
the values go to. The classes are asked for one field at a time, so nothing looks for a model or a GPU.
"""

import contextlib
import dataclasses
import importlib
import io
import json
import sys
from argparse import Action, Namespace
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_origin

# A field that no class has, so validation always ends before a class looks for what a field names.
NO_FIELD = "no field has this name"
BOUNDS = ("gt", "ge", "lt", "le")


def load(name: str) -> Any:
    return importlib.import_module(name)


def is_literal(hint: Any) -> bool:
    return get_origin(hint) is Literal


class Release:
    def __init__(self) -> None:
        self.pydantic, self.config = load("pydantic"), load("vllm.config")
        self.arg_utils = load("vllm.engine.arg_utils")
        load("huggingface_hub").constants.HF_HUB_OFFLINE = False  # else it looks for the model
        keywords_of = self.arg_utils.get_kwargs
        # The help of each flag becomes the field that its value goes to.
        self.arg_utils.get_kwargs = lambda section: {
            name: {**keywords, "help": f"{section.__name__}.{name}"} for name, keywords in keywords_of(section).items()
        }
        self.command = load("vllm.entrypoints.cli.serve").ServeSubcommand()
        self.parser = load("vllm.utils.argparse_utils").FlexibleArgumentParser()
        self.serve = self.command.subparser_init(self.parser.add_subparsers(dest="subparser"))
        self.actions = [action for action in self.serve._actions if action.option_strings and action.dest != "help"]

    def refusal(self, line: list[str]) -> str:
        """Why a server with these arguments does not start; empty if none of this refuses them."""
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                namespace = self.parser.parse_args(["serve", "model", *line])
                self.command.validate(namespace)
                self.arg_utils.AsyncEngineArgs.from_cli_args(namespace)
                outputs = Namespace(reasoning_parser=namespace.reasoning_parser)
                stated = Namespace(**{**vars(namespace), "structured_outputs_config": outputs})
                load("vllm.entrypoints.launchers.launcher").validate_api_server_args(stated)
                if namespace.load_format not in load("vllm.model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER:
                    return f"ValueError: Load format `{namespace.load_format}` is not supported"
        except SystemExit as end:
            return (errors.getvalue().strip().rpartition("error: ")[2] or "prints its help") if end.code else "ends"
        except Exception as error:  # noqa: BLE001  whatever ends the server
            return f"{type(error).__name__}: {error}"
        return next(self.refused_fields(namespace), "")

    def refused_fields(self, namespace: Namespace) -> Iterator[str]:
        """What the classes refuse of the values that differ from the default."""
        for action in self.actions:
            value = getattr(namespace, action.dest, None)
            if value is None or value is action.default or value == action.default or dataclasses.is_dataclass(value):
                continue
            section, field = self.field_of(action)
            if section is None:
                continue
            nested = self.nested(section, field)
            values = value if nested and isinstance(value, dict) else {field: value}
            for error in self.errors(nested if values is value else section, values):
                yield f"argument {'/'.join(action.option_strings)}: {error['loc']}: {error['msg']}"

    def field_of(self, action: Action) -> tuple[Any, str]:
        """The class and the field that the value of a flag goes to. Classes of the front end are never built."""
        section, _, field = (action.help or "").partition(".")
        return getattr(self.config, section, None) if field.isidentifier() else None, field

    def nested(self, section: Any, field: str) -> Any:
        """The configuration class that is the type of a field, or None."""
        hints = self.arg_utils.get_type_hints(next(f.type for f in dataclasses.fields(section) if f.name == field))
        return next((hint for hint in hints if hasattr(hint, "__pydantic_fields__")), None)

    def errors(self, section: Any, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What a class refuses of these fields."""
        try:
            self.pydantic.TypeAdapter(section).validate_python({**values, NO_FIELD: 0})
        except self.pydantic.ValidationError as error:
            found: list[dict[str, Any]] = error.errors(include_url=False, include_context=False, include_input=False)
            return [item for item in found if item["loc"] and item["loc"][0] in values]
        except Exception as error:  # noqa: BLE001  a validator may fail on a type
            return [{"loc": tuple(values)[:1], "msg": f"{type(error).__name__}: {error}"}]
        return []

    def bounds(self, section: Any, field: str) -> dict[str, float]:
        found = section.__pydantic_fields__.get(field)
        return {
            bound: getattr(item, bound)
            for item in (found.metadata if found else ())
            for bound in BOUNDS
            if getattr(item, bound, None) is not None
        }

    def keys(self, section: Any, values: list[Any], depth: int = 0) -> dict[str, Any]:
        """The fields of a class that are taken as keys of JSON, each with the values that it accepts."""
        found = {}
        for field in dataclasses.fields(section):
            hints, inner = self.arg_utils.get_type_hints(field.type), self.nested(section, field.name)
            literals = [item for hint in hints if is_literal(hint) for item in hint.__args__]
            refused = [self.errors(section, {field.name: value}) for value in [*values, *literals]]
            if all(
                error["msg"] == "Unexpected keyword argument" for errors in refused for error in errors or [{"msg": ""}]
            ):
                continue  # a field that the class sets itself
            accepted = [not errors for errors in refused]
            if not any(accepted) and inner is None:
                accepted = [True] * len(accepted)  # it needs a value that was not tried
            found[field.name] = {"accepted": accepted[: len(values)], "bounds": self.bounds(section, field.name)}
            if taken := [item for item, is_taken in zip(literals, accepted[len(values) :], strict=True) if is_taken]:
                found[field.name]["choices"] = taken
            if inner is not None and depth < 3:
                found[field.name]["keys"] = self.keys(inner, values, depth + 1)
        return found

    def names(self, action: Action, section: Any, field: str) -> list[str]:
        """Names that may be values of a flag."""
        hints = (
            self.arg_utils.get_type_hints(next(f.type for f in dataclasses.fields(section) if f.name == field))
            if section
            else ()
        )
        found = [item for item in action.choices or () if item is not None]
        for hint in hints:
            if is_literal(hint):
                found += hint.__args__
            elif isinstance(hint, type) and issubclass(hint, load("enum").Enum):
                members: Any = hint
                found += [item for member in members for item in (member.name, member.value)]
        return list(dict.fromkeys(str(item) for item in found))

    def flag(self, action: Action, texts: list[str], values: list[Any]) -> dict[str, Any]:
        """A flag, with why it refuses each text, and each form of a name that may be its value."""
        section, field = self.field_of(action)
        flags = [name for name in action.option_strings if name.startswith("--")]
        own = f"--{action.dest.replace('_', '-')}"
        name = own if own in flags else flags[0]
        described: dict[str, Any] = {"name": name, "names": action.option_strings}
        if action.nargs == 0:
            switch = "nothing" if len(flags) == 1 else "on or off"
            return {**described, "takes": switch, "alone": self.refusal([name])}
        names = self.names(action, section, field)
        forms = {form for item in names for form in (item, item.upper(), item.lower(), item.replace("_", "-"))}
        nested = self.nested(section, field) if section else None
        return {
            **described,
            "takes": action.nargs,
            "choices": names,
            "refused": {text: self.refusal([f"{name}={text}"]) for text in [*texts, *sorted(forms)]},
            "bounds": self.bounds(section, field) if section else {},
            "keys": self.keys(nested, values) if nested else {},
        }


def main() -> None:
    asked = json.load(sys.stdin)
    sys.argv[1:] = ["serve"]
    release = Release()
    flags = [release.flag(action, asked["texts"], asked["values"]) for action in release.actions]
    launcher = load("vllm.entrypoints.launchers.launcher")
    answer = {
        "flags": flags,
        "names": {
            "tool-call-parser": sorted(launcher.ToolParserManager.list_registered()),
            "reasoning-parser": sorted(launcher.ReasoningParserManager.list_registered()),
            "load-format": sorted(load("vllm.model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER),
        },
        "verdicts": [release.refusal(line) for line in asked["lines"]],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
