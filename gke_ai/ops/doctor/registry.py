"""Asks registries of container images, without a credential, for the digest that a tag has now.

The protocol is https://github.com/opencontainers/distribution-spec/blob/main/spec.md, and the token's
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from email.message import Message

from gke_ai.catalog.project.registries import DOCKER_HUB, registry_of
from gke_ai.kube.client import Answer

SECONDS = 20
MAX_BYTES = 2**20  # of a token's answer
DOCKER_HUB_API = "registry-1.docker.io"
# An index of images for several platforms, and an image: what a node asks for.
ACCEPTED = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)


def digest_of(image: str, scheme: str = "https") -> Answer:
    """Returns the digest of an image's tag, without regard to a digest in its name; or the status of the refusal."""
    host, path, tag = parts(image)
    url = f"{scheme}://{host}/v2/{path}/manifests/{tag}"
    answer, headers = _head(url, "")
    if answer.code == 401 and (challenge := headers.get("WWW-Authenticate", "")).lower().startswith("bearer "):
        answer, headers = _head(url, _token(challenge, scheme))
    return Answer(200, headers.get("Docker-Content-Digest", "")) if answer.code == 200 else answer


def parts(image: str) -> tuple[str, str, str]:
    """Returns the host of an image's registry, its path there, and its tag."""
    name = image.partition("@")[0]
    host = registry_of(name)
    path = name.removeprefix(f"{host}/")
    tag = path.rpartition("/")[2].partition(":")[2]
    path = path.removesuffix(f":{tag}") if tag else path
    if host == DOCKER_HUB:
        host, path = DOCKER_HUB_API, path if "/" in path else f"library/{path}"
    return host, path, tag or "latest"


def _head(url: str, token: str) -> tuple[Answer, Message]:
    headers = {"Accept": ACCEPTED, **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers, method="HEAD"), timeout=SECONDS
        ) as got:
            return Answer(got.status), got.headers
    except urllib.error.HTTPError as error:
        return Answer(error.code, error=str(error.reason)), error.headers
    except (OSError, ValueError) as error:
        return Answer(0, error=str(getattr(error, "reason", error))), Message()


def _token(challenge: str, scheme: str) -> str:
    """A token for everybody, from the address that the registry names; empty if there is none."""
    stated = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({key: stated[key] for key in ("service", "scope") if key in stated})
    realm = stated.get("realm", "")
    if not realm.startswith(f"{scheme}://"):
        return ""
    try:
        with urllib.request.urlopen(f"{realm}?{query}", timeout=SECONDS) as got:
            content = json.loads(got.read(MAX_BYTES))
    except (OSError, ValueError):
        return ""
    return str(content.get("token") or content.get("access_token") or "") if isinstance(content, dict) else ""
