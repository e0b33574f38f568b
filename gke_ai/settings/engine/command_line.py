"""What the keys of a server become for its engine: flags and environment variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic.alias_generators import to_camel

from gke_ai.catalog.engines.engine import Engine
from gke_ai.catalog.engines.model_cache import release_of
from gke_ai.catalog.engines.vllm import LORA_FLAGS

# What a server needs to end after its last answer, in seconds. vLLM 0.32 took less than 5 s on a CPU.
EXIT_SECONDS = 10


@dataclass(frozen=True)
class EngineName:
    """The name by which an engine takes a key: a flag such as `--max-num-seqs`, or an environment variable.

    It annotates a key of one engine. `ENGINES` has the names of the keys of every server.
    """

    name: str


@dataclass(frozen=True)
class EngineSetting:
    """A key of a server, with the name by which the engine takes it. A value of true becomes a flag alone."""

    name: str
    key: str
    value: object

    @property
    def is_flag(self) -> bool:
        """Whether the engine takes it as a flag, not as an environment variable."""
        return self.name.startswith("-")

    @property
    def is_set(self) -> bool:
        """Whether the engine gets it."""
        return self.value is not None and self.value is not False and self.value != ""


@dataclass(frozen=True)
class CommandLine:
    """What the keys of a server become for its engine.

    Attributes:
        engine: The engine.
        image: The server's image.
        settings: The keys that the engine takes, whether set or not.
        stated: Variables and arguments that the user states in the engine's own words, without dashes.
        cache_flags: Flags for a model in a bucket.
        cache_variables: Environment variables for a model in a bucket.
        adapter_flags: Flags for LoRA adapters.
        open_seconds: Time in which a terminating replica can finish its requests, in seconds.
    """

    engine: Engine
    image: str
    settings: Sequence[EngineSetting]
    stated: Mapping[str, str]
    cache_flags: Sequence[str]
    cache_variables: Mapping[str, str]
    adapter_flags: Sequence[str]
    open_seconds: int

    @property
    def flags(self) -> list[str]:
        """The flags."""
        given = (setting for setting in self.settings if setting.is_flag and setting.is_set)
        own = [item.name if item.value is True else f"{item.name}={item.value}" for item in given]
        return [*own, *self.cache_flags, *self.adapter_flags, *self._shutdown_flags]

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables, but for those for a model in a bucket."""
        given = (setting for setting in self.settings if not setting.is_flag and setting.is_set)
        return {item.name: "true" if item.value is True else str(item.value) for item in given}

    @property
    def set_variables(self) -> dict[str, str]:
        """Environment variables that the program sets, with the key that each comes from."""
        # A variable that only changes the memory is free while its key is not set.
        free = self.engine.memory.changed_by if self.engine.memory else ()
        return dict.fromkeys(self.cache_variables, "modelCache") | {
            setting.name: to_camel(setting.key)
            for setting in self.settings
            if not setting.is_flag and (setting.name not in free or setting.value)
        }

    @property
    def set_arguments(self) -> dict[str, str]:
        """Names of arguments that the program sets, without dashes, with the key that each comes from."""
        keys = {setting.name.lstrip("-"): setting.key for setting in self.settings if setting.is_flag}
        cached = dict.fromkeys((flag.partition("=")[0].lstrip("-") for flag in self.cache_flags), "model_cache")
        adapters = dict.fromkeys(LORA_FLAGS if self.adapter_flags else (), "lora_adapters")
        return {name: to_camel(key) for name, key in {**keys, **self.engine.aliases, **cached, **adapters}.items()}

    @property
    def accepted_limit(self) -> int | None:
        """Maximum number of requests that run or wait in a replica; None if unknown or not limited."""
        return self._limit(self.engine.limits.accepted_setting, self.engine.limits.accepted)

    def running_limit(self, accelerators: set[str]) -> int | None:
        """Maximum number of requests that a replica runs at once on some of these accelerators; None if unknown."""
        limits = self.engine.limits
        defaults = [limits.running_on.get(name, limits.running) for name in accelerators]
        default = max((limit for limit in defaults if limit is not None), default=limits.running)
        known = [self._limit(limits.running_setting, default), self.accepted_limit]
        return min((limit for limit in known if limit is not None), default=None)

    def _limit(self, name: str, default: int | None) -> int | None:
        keys = {setting.name.lstrip("-"): str(setting.value) for setting in self.settings if setting.is_set}
        if (text := {**self.stated, **keys}.get(name)) is not None:
            return int(text) if text.isdigit() else None
        # Another image may have another default.
        return default if self.image == self.engine.image else None

    @property
    def _shutdown_flags(self) -> list[str]:
        """The flag with the time in which open answers may finish, if the image is known to have it.

        The engine needs some of the grace period to end.
        """
        flag, release, seconds = self.engine.shutdown_flag, release_of(self.image), self.open_seconds - EXIT_SECONDS
        if not flag or flag in self.stated or seconds < 1 or release is None or release < self.engine.shutdown_since:
            return []
        return [f"--{flag}={seconds}"]


class MaxTextCommandLine(CommandLine):
    """The command line of MaxText, which takes all settings as arguments, and none as environment variables."""

    @property
    def set_variables(self) -> dict[str, str]:
        return {}

    @property
    def set_arguments(self) -> dict[str, str]:
        return {setting.name: to_camel(setting.key) for setting in self.settings}
