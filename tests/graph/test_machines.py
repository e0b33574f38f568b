"""The examples of machines are short, and neither Google nor a policy refuses them."""

import pytest

from tests.support import repository
from tests.support.registered import cloud_requests, violated

EXAMPLES = [str(path.relative_to(repository.ROOT)) for path in repository.tracked("examples/machines/*.yaml")]
MAX_LINES = 40
# The installers of GPUDirect, and the agent for NICs of A4X Max: privileges, and requests, of Google's manifests.
INSTALLERS = {"no-privileged-pods", "resources-are-set"}
LEFT_OPEN = {f"examples/machines/{name}.yaml": INSTALLERS for name in ("a3-high", "a3-mega", "a4x-max")}


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_has_few_lines_and_neither_google_nor_a_policy_refuses_it(path: str) -> None:
    _, _, content = (repository.ROOT / path).read_text().partition("config:\n")
    assert len(content.splitlines()) <= MAX_LINES
    for resource, name, inputs in cloud_requests(path):
        assert list(resource.problems(inputs)) == [], name
    assert violated(path, preview=True).keys() == LEFT_OPEN.get(path, set())
