"""The recording of a real vLLM: its file, and the parts of the program that it belongs to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from maintain.real_vllm.served import Served

FILE = Path(__file__).with_name("recorded.yaml")
HEAD = """\
# Written by `make test-vllm`: what a real vLLM did, started with the commands and variables that the program registers.
# It had a tiny model with random weights, on the CPU. The field `made with` has the versions.
"""


def recorded() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def dumped(content: object) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=120)


def command(server: Served) -> str:
    """The command of a server, without the port and the time that a recording and a test choose for themselves."""
    return re.sub(r"--(port|shutdown-timeout)=\d+", r"--\1=N", " ".join(server.command))
