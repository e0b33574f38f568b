"""Runs the command `gke-ai` in this process."""

from gke_ai.cli import verbs


def gke_ai(*words: object) -> int:
    """Runs a verb, and returns its exit code. What stops it is raised."""
    try:
        verbs.gke_ai.main([*map(str, words)], standalone_mode=False)
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        return ended.code
    return 0
