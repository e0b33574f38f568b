"""Entry point that Pulumi starts for `--policy-pack policy`."""

import sys
from pathlib import Path

# Pulumi puts only the folder of the pack on the path; its rules import packages of the parent folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gke_ai.review.policy.pack import run

run()
