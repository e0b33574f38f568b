"""Whom clients of the stand-in trust: the authorities of this machine, and those of the stand-in's clusters.

A kubeconfig with the DNS name of a control plane holds no certificate, as Google's are trusted everywhere. `local/run`
points SSL_CERT_FILE here, which programs in Go, curl and Python's `ssl` read.
"""

from __future__ import annotations

import os
from pathlib import Path

from local import paths


def renew() -> None:
    """Writes the file anew for the clusters that there are; outside `local/run` nobody reads it."""
    if not (machine := os.environ.get("GKE_AI_AUTHORITIES")):
        return
    clusters = sorted(paths.CLUSTERS.glob("[!.]*/kwok/clusters/*/pki/ca.crt"))
    file = paths.STATE / "authorities.pem"
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text("\n".join(one.read_text() for one in (Path(machine), *clusters)))
    new.replace(file)
