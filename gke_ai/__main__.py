"""`python -m gke_ai`: the command `gke-ai` in an environment that has it not on PATH."""

from __future__ import annotations

from gke_ai.cli import main

if __name__ == "__main__":
    main()
