"""The former command `python -m gke_ai.ops.verify`."""

from __future__ import annotations

from gke_ai import former_names

if __name__ == "__main__":
    former_names.run_verb("ops.verify")
