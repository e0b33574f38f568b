"""IAM members for Kubernetes service accounts, which exist once the project has had a cluster."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.components.base import look_up


def project_number(project: str, whose: str, parent: pulumi.Resource) -> str:
    """The number of a project, for its principals. `whose` begins the error: the resource and its verb."""
    found = look_up(
        lambda: gcp.organizations.get_project(project_id=project, opts=pulumi.InvokeOptions(parent=parent)),
        f"{whose} the number of project {project}. Check gcp:project, and that you are logged in to Google Cloud with "
        f"access to it: gcloud projects describe {project}",
    )
    return found.number


def after_workload_pool(member: str, workload_pool: pulumi.Input[str]) -> pulumi.Output[str]:
    """The member, as an output that waits until the workload identity pool exists."""
    return pulumi.Output.from_input(workload_pool).apply(lambda _: member)
