"""Pictures for the documentation, drawn by code.

`make pictures` writes them, and a test fails if one is stale.
"""

from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "pictures"
# What the pictures show, as it was recorded.
RECORDINGS = ROOT / "tests" / "data" / "pictures"
