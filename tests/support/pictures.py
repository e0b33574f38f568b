"""Pictures and the results that they show."""

from xml.etree import ElementTree

from gke_ai.forecast.result.forecast import read
from tests.support.repository import ROOT

# Recorded results of rehearsals.
RECORDED = {
    path.name: read(path)
    for path in sorted((ROOT / "tests" / "data" / "pictures").glob("*.json"))
    if '"compression"' in path.read_text()
}


def texts_of(picture: str) -> list[str]:
    """The texts of a picture, in the order in which they are drawn."""
    return [item.text or "" for item in ElementTree.fromstring(picture) if item.tag.endswith("text")]
