"""Checks of the Google Cloud provider's own keys, `gcp:project` and `gcp:region`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gke_ai.catalog.machines.zones import ZONES, is_zone, region_of
from gke_ai.settings.problems import Problem, nearest

# 6 to 30 lowercase letters, digits and hyphens, from a letter to a letter or digit:
# https://cloud.google.com/resource-manager/docs/creating-managing-projects
_ID = "[a-z][-a-z0-9]{4,28}[a-z0-9]"
# Older projects of an organization carry its domain, as in `example.com:my-project`:
# https://github.com/hashicorp/terraform-provider-google (verify.ProjectRegex). Service accounts of such a project end
# in @my-project.example.com.iam.gserviceaccount.com, as in public scripts of Google's skia-buildbots. Google documents
# no name for its identity pool. Bindings with a wrong name would grant nothing.
_DOMAIN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+"
_OF_DOMAIN = re.compile(f"{_DOMAIN}:{_ID}")


def project_problems(project: str) -> Iterator[Problem]:
    """A project is set, and its id can exist."""
    path, command = "gcp:project", "pulumi config set gcp:project PROJECT_ID"
    if not project:
        yield Problem(path, "no project is set. Pulumi could create nothing", f"Run {command}")
    elif project.isdigit():
        cause = f"{project} is the number of a project. Names and identities need its id"
        yield Problem(path, cause, f"Run {command}; gcloud projects describe {project} shows the id")
    elif _OF_DOMAIN.fullmatch(project):
        cause = f"{project} is an id with a domain, and the name of its identity pool is unknown. Grants to the "
        cause += "stack's service accounts might have no effect"
        yield Problem(path, cause, f"Use a project without a domain: {command}")
    elif re.fullmatch(_ID, project) is None:
        cause = f"{project} is not a valid project id. An id has 6 to 30 lowercase letters, digits and hyphens, starts "
        cause += "with a letter and does not end with a hyphen"
        yield Problem(path, cause, f"Run {command}; gcloud projects list shows the ids")


def region_problems(region: str) -> Iterator[Problem]:
    """The default region exists. It is optional, as every resource of this program sets its own."""
    if not region or region in ZONES:
        return
    if is_zone(region) and region_of(region) in ZONES:
        cause = f"{region} is a zone, not a region. Google Cloud would refuse regional requests"
        yield Problem("gcp:region", cause, f"Write {region_of(region)}")
        return
    cause = f"{region} is not a region of Google Cloud. It would refuse regional requests"
    yield Problem("gcp:region", cause, nearest(region, ZONES))
