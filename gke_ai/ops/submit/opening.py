"""Opens the connection to the cluster, and reads what the stack published, while the rules are loaded."""

from __future__ import annotations

from threading import Thread

from gke_ai.catalog.published import CONFIG_MAP
from gke_ai.kube.client import Answer, ApiClient, request
from gke_ai.workspace.stack import Context


class Opening:
    """A client of the cluster, and what the stack published to the namespace of the context.

    The credential plugin of a kubeconfig and the first connection take about as long as the rules, and no exit of the
    command waits for them.
    """

    def __init__(self, context: Context) -> None:
        self.namespace = context.namespace
        self._context = context
        self._opened: tuple[ApiClient, Answer | None] | None = None
        self._error: Exception | None = None
        self._thread = Thread(target=self._open, daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            api = self._context.cluster()
            self._opened = api, published(api, self.namespace) if self.namespace else None
        except Exception as error:  # noqa: BLE001  raised where the result is asked for
            self._error = error

    def result(self, namespace: str) -> tuple[ApiClient, Answer]:
        """Returns the client, and what is published to a namespace. Stops if the cluster does not answer."""
        self._thread.join()
        if self._opened is None:
            assert self._error
            raise self._error
        api, answer = self._opened
        return api, answer if answer and namespace == self.namespace else published(api, namespace)


def published(api: ApiClient, namespace: str) -> Answer:
    """Reads the ConfigMap of a namespace."""
    return request(api, "GET", f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}")
