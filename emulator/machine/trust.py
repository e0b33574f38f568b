"""Writes the file of trusted certificate authorities: those of this machine and of the emulator's clusters.

A kubeconfig with the DNS name of a control plane contains no certificate, because every machine trusts Google's.
`emulator/run` sets SSL_CERT_FILE to this file. Go programs, curl and Python's `ssl` read it.
"""

from __future__ import annotations

import os
from pathlib import Path

from emulator.machine import paths


def renew() -> None:
    """Rewrites the file for the current clusters.

    Does nothing outside `emulator/run`, where no program reads it.
    """
    if not (machine := os.environ.get("GKE_AI_AUTHORITIES")):
        return
    clusters = sorted(paths.CLUSTERS.glob("[!.]*/kwok/clusters/*/pki/ca.crt"))
    file = paths.STATE / "authorities.pem"
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    new.write_text("\n".join(file.read_text() for file in (Path(machine), *clusters)))
    new.replace(file)
