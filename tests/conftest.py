"""What several files of tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.recorder import Record, record


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    """Builds one component alone and gives the record of it."""

    def run(component: Any, base: dict[str, Any], **more: Any) -> Record:
        return record(lambda: component("x", {**base, **more}), False, monkeypatch)

    return run
