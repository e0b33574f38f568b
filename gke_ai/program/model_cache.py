"""The Jobs that fill buckets with models."""

from __future__ import annotations

import pulumi

from gke_ai.catalog.engines.model_cache import ACCOUNT
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.catalog.project.apis import SECRET_MANAGER
from gke_ai.components import GkeCluster, ModelBucket, ModelDownload, WorkloadNamespace
from gke_ai.program.cluster import Apis, after
from gke_ai.program.queues import secret_manager
from gke_ai.settings import ResolvedStack
from gke_ai.settings.resolved import Download


def create_downloads(
    stack: ResolvedStack,
    project: str,
    token: pulumi.Output[str] | None,
    cluster: GkeCluster,
    apis: Apis,
    buckets: dict[str, ModelBucket],
) -> dict[Download, ModelDownload]:
    """The Jobs that fill buckets, in a namespace of their own, which alone has their token."""
    downloads = stack.downloads
    if not downloads:
        return {}
    token_from = secret_manager(stack.settings.hf_token_secret, project, cluster)
    filled = [buckets[name] for name in dict.fromkeys(download.bucket for download in downloads)]
    namespace = WorkloadNamespace(
        MODEL_CACHE,
        opts=after(*apis.enabled(SECRET_MANAGER), *filled),
        cluster=cluster,
        hf_token=None if token_from else token,
        hf_token_from=token_from,
        token_secrets=[download.token for download in downloads if download.token],
        service_accounts=[ACCOUNT],
    )
    return {
        download: ModelDownload(
            f"{MODEL_CACHE}/{download.name}",
            namespace=namespace,
            bucket=download.bucket,
            model=download.model,
            revision=download.revision,
            token_secret=download.token,
            timeout_seconds=download.timeout_seconds,
        )
        for download in downloads
    }
