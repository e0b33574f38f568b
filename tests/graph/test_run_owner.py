"""In a preview that creates the owner of a run, the run has no owner, as the API server refuses one without a uid."""

from __future__ import annotations

import asyncio

import pytest

from gke_ai.components.support.run_owner import owned_by


@pytest.mark.parametrize(("uid", "owners"), [("", []), ("u", ["u"])])
def test_only_an_owner_with_a_uid_is_registered(uid: str, owners: list[str]) -> None:
    async def registered() -> list[str]:
        references = await owned_by({"name": "runs", "uid": uid})["ownerReferences"].future()
        return [reference["uid"] for reference in references]

    assert asyncio.run(registered()) == owners
