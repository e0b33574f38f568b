"""Whom clients of the emulator trust: the authorities of this machine, and those of the emulator's clusters.

A kubeconfig with the DNS name of a control plane holds no certificate, because every machine trusts Google's.
`emulator/run` sets SSL_CERT_FILE to this file; Go programs, curl and Python's `ssl` read it.
"""

from __future__ import annotations

import os
from pathlib import Path

from emulator import paths


def renew() -> None:
    """Writes the file anew for the clusters that there are; outside `emulator/run` nobody reads it."""
    if not (machine := os.environ.get("GKE_AI_AUTHORITIES")):
        return
    clusters = sorted(paths.CLUSTERS.glob("[!.]*/kwok/clusters/*/pki/ca.crt"))
    file = paths.STATE / "authorities.pem"
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text("\n".join(one.read_text() for one in (Path(machine), *clusters)))
    new.replace(file)
