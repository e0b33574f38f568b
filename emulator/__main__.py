"""`gke-ai-emulator`: the command `emulator/run` of an emulator that pip installed."""

from __future__ import annotations

import sys

from gke_ai.workspace.emulation import enter


def main() -> None:
    """Runs a command with the emulator's tools, plugins, state and kubeconfig."""
    enter(*sys.argv[1:])


if __name__ == "__main__":
    main()
