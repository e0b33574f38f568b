"""IAM members for Kubernetes service accounts, which exist once the project has had a cluster."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.project.identities import principal
from gke_ai.components.base import look_up


def project_number(project: pulumi.Input[str], whose: str, parent: pulumi.Resource) -> pulumi.Input[str]:
    """The number of a project, for its principals. `whose` begins the error: the resource and its verb."""
    inside = pulumi.InvokeOptions(parent=parent)
    if isinstance(project, str):
        found = look_up(
            lambda: gcp.organizations.get_project(project_id=project, opts=inside),
            f"{whose} the number of project {project}. Check gcp:project, and that you are logged in to Google Cloud "
            f"with access to it: gcloud projects describe {project}",
        )
        return found.number
    late = gcp.organizations.get_project_output(project_id=project, opts=inside)
    return late.apply(lambda found: found.number)


def member_of(
    number: pulumi.Input[str],
    project: pulumi.Input[str],
    namespace: str,
    service_account: str,
    workload_pool: pulumi.Input[str],
) -> pulumi.Output[str]:
    """The IAM member of a Kubernetes service account, as an output that waits for the workload identity pool."""
    known = pulumi.Output.all(number, project, workload_pool)
    return known.apply(lambda known: principal(known[0], known[1], namespace, service_account))
