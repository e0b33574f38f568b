"""What Pulumi starts for `--policy-pack policy`."""

import sys
from pathlib import Path

# The folder of the pack is what is on the path here; its rules read the catalogue beside it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policy.pack import run

run()
