"""Every example, each from nothing: it comes up, stays as it is, and leaves all as it was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.standin import ROOT, StandIn, begun, gone, settled

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.yaml"))
# Examples whose whole life another file goes through, with what is to be seen on the way.
ELSEWHERE: dict[str, str] = {
    "mixed-training-inference.yaml": "test_convergence.py",
}


@pytest.mark.cluster
@pytest.mark.parametrize("example", [name for name in EXAMPLES if name not in ELSEWHERE])
def test_example_comes_up_stays_as_it_is_and_goes(example: str, stand_in: StandIn) -> None:
    config = stand_in.configure(f"examples/{example}")
    found = begun(stand_in, config)
    stand_in.make("up", config)
    settled(stand_in)
    stand_in.make("down")
    gone(stand_in, found)


@pytest.mark.parametrize(("example", "file"), ELSEWHERE.items())
def test_example_that_is_left_to_another_file_is_gone_through_there(example: str, file: str) -> None:
    assert example in EXAMPLES
    text = (Path(__file__).parent / file).read_text()
    for part in (f"examples/{example}", "--expect-no-changes", "nothing_left"):
        assert part in text, f"{file} says nothing of {part}"
