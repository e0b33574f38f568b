"""The outputs of a gke-ai stack: the contract (`model`), and a typed view for other programs (`stack_outputs`).

Other teams install this folder alone, so it imports nothing else of the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gke_ai_outputs.version import VERSION

if TYPE_CHECKING:
    from gke_ai_outputs.model import MissingOutput
    from gke_ai_outputs.stack_outputs import StackOutputs

__all__ = ["VERSION", "MissingOutput", "StackOutputs"]


def __getattr__(name: str) -> Any:
    # Loads the models on their first use.
    if name == "MissingOutput":
        from gke_ai_outputs.model import MissingOutput

        return MissingOutput
    if name == "StackOutputs":
        from gke_ai_outputs.stack_outputs import StackOutputs

        return StackOutputs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
