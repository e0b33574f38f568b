"""The Google Cloud APIs that a stack needs."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from gke_ai.components.arguments import Arguments, Input, project_of, takes
from gke_ai.components.base import Component


class ProjectApisArguments(Arguments):
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the provider."""
    apis: Sequence[str]
    """Service names, such as `container.googleapis.com`."""


class ProjectApis(Component):
    """Enables Google Cloud APIs in a project. A destroy leaves them enabled: others in the project may use them.

    `services` maps each API to its resource, which other resources can wait for. Service Usage and Cloud Resource
    Manager must be enabled beforehand (`gke_ai.catalog.project.apis.BEFOREHAND`): the provider enables the other APIs
    through them.

    Refused: by Google, an API that does not exist, or that you are not allowed to enable.

    Sources: https://cloud.google.com/service-usage/docs/enable-disable,
    https://www.pulumi.com/registry/packages/gcp/api-docs/projects/service/

    Example:
        ProjectApis("apis", apis=["container.googleapis.com"])
    """

    apis: pulumi.Output[list[str]]
    """Names of the enabled APIs."""

    @takes(ProjectApisArguments)
    def __init__(self, name: str, args: ProjectApisArguments) -> None:
        super().__init__(name, args)
        project = project_of(args.project, f"ProjectApis {name}")
        self.services: dict[str, gcp.projects.Service] = {
            api: gcp.projects.Service(*self.child(api), service=api, project=project, disable_on_destroy=False)
            for api in args.apis
        }
        self.apis = pulumi.Output.all(*(service.service for service in self.services.values()))
        self.register_outputs({"apis": self.apis})
