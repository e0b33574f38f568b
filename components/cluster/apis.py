"""The Google Cloud APIs that a stack needs."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from gke_ai.components.base import Component


class ProjectApis(Component):
    """Enables Google Cloud APIs in a project. A destroy leaves them enabled: others in the project may use them.

    `services` maps each API to its resource, which other resources can wait for. Service Usage and Cloud Resource
    Manager must be enabled beforehand (`gke_ai.catalog.project.apis.BEFOREHAND`): the provider enables the other APIs
    through them.

    Refused: by Google, an API that does not exist, or that you are not allowed to enable.

    Sources: https://cloud.google.com/service-usage/docs/enable-disable,
    https://www.pulumi.com/registry/packages/gcp/api-docs/projects/service/
    """

    apis: pulumi.Output[list[str]]
    """Names of the enabled APIs."""

    def __init__(
        self, name: str, opts: pulumi.ResourceOptions | None = None, *, project: str, apis: Sequence[str]
    ) -> None:
        """Enable the APIs.

        Args:
            project: Id of the Google Cloud project.
            apis: Service names, such as `container.googleapis.com`.
        """
        super().__init__(name, opts)
        self.services: dict[str, gcp.projects.Service] = {
            api: gcp.projects.Service(*self.child(api), service=api, project=project, disable_on_destroy=False)
            for api in apis
        }
        self.apis = pulumi.Output.all(*(service.service for service in self.services.values()))
        self.register_outputs({"apis": self.apis})
