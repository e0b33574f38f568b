"""A namespace with the Secrets, service accounts and local queues that its workloads need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import yaml

from gke_ai.catalog.engines.gateways import API_KEY, API_KEY_SECRET
from gke_ai.catalog.fabric.nvlink import DOMAIN, written_objects
from gke_ai.catalog.project.identities import SECRET_ACCESSOR, principal
from gke_ai.catalog.versions import KUEUE_API, SECRET_PROVIDER_CLASS_API, SECRET_SYNC_API
from gke_ai.components.base import Component, custom_object, look_up, named
from gke_ai.components.support.identity import after_workload_pool, project_number
from gke_ai.components.support.retry import kueue_hook
from gke_ai.components.support.run_owner import DELETION, create_owner, name_of_owner
from gke_ai.settings.model import TokenSecret
from gke_ai.settings.resolved import DEFAULT_NAMESPACE

# The service account that may read the token. No workload runs as it.
TOKEN_SYNC = "hf-token-sync"
TOKEN_PATH = "token"


@dataclass(frozen=True)
class NamespaceQueue:
    """A Kueue LocalQueue, which submits workloads of the namespace to a cluster queue."""

    name: str
    """Name of the local queue. Workloads select it by this name."""
    cluster_queue: str
    """Cluster queue that provides the quota."""


@dataclass(frozen=True)
class SecretManager:
    """A secret of Secret Manager, and the project and pool of the identity that reads it."""

    secret: str
    """`projects/PROJECT/secrets/ID`."""
    project: str
    """Id of the cluster's project."""
    workload_pool: pulumi.Input[str]
    """The project's workload identity pool, an output of the cluster. The grant waits for it."""


class WorkloadNamespace(Component):
    """A namespace with its token Secrets, service accounts and local queues.

    The namespace `default` exists in every cluster. There, and with `existing`, the component creates everything except
    the namespace.

    With `token_from`, GKE creates the Secrets from a secret of Secret Manager and keeps them up to date. The component
    creates a SecretProviderClass, a SecretSync for each Secret, and a service account that may read only this secret.
    GKE does not touch a Secret that already exists. When you switch from `token`, Pulumi deletes its Secret at the end
    of the update, and GKE creates the new one within minutes. When you switch back, delete the SecretSync first, or its
    Secret is in the way.

    Local queues belong here and not to `KueueStack`: the namespace is created after Kueue and deleted before it,
    because its workloads hold quota that only a running Kueue releases.

    Refused: ValueError for token secrets without exactly one of `token` and `token_from`; RunError for a secret that
    doesn't exist, or a project that can't be read.

    Sources: https://kubernetes.io/docs/concepts/configuration/secret/,
    https://cloud.google.com/secret-manager/docs/sync-k8-secrets,
    https://kueue.sigs.k8s.io/docs/concepts/local_queue/
    """

    namespace_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        namespace: str,
        existing: bool = False,
        labels: Mapping[str, str] | None = None,
        token: pulumi.Input[str] | None = None,
        token_from: SecretManager | None = None,
        token_secrets: Sequence[TokenSecret] = (),
        api_key: pulumi.Input[str] | None = None,
        service_accounts: Sequence[str] = (),
        local_queues: Sequence[NamespaceQueue] = (),
        claims: Sequence[str] = (),
    ) -> None:
        """Create the namespace.

        Args:
            namespace: Name of the namespace.
            existing: The cluster has the namespace. It is neither created, changed nor deleted.
            labels: Labels of the namespace, such as its Pod Security level. Not for one that exists.
            token: The Hugging Face token, a Pulumi secret.
            token_from: Secret that GKE reads the token from, without Pulumi. Needs `secret_sync` on the cluster.
            token_secrets: Kubernetes Secrets to create with the token, each with its key.
            api_key: API key of the gateway's clients, a Pulumi secret. The Secret `gateway-api-key` holds it.
            service_accounts: Service accounts to create. `default` always exists.
            local_queues: Local queues to create.
            claims: Names of the templates by which pods claim devices: `rdma` or `rdma-4` for the eight or four NICs of
                a node with an RDMA network, `nvlink` for channels of NVLink. NVIDIA's driver writes the last one.
        """
        super().__init__(name, opts)
        sources = sum(source is not None and source != "" for source in (token, token_from))
        if token_secrets and sources != 1:
            count = "Both are set" if sources else "Neither is set"
            raise ValueError(f"namespace {name}: token_secrets needs either token or token_from. {count}")

        created: list[pulumi.CustomResource] = []
        self._namespace = namespace
        self._owner: pulumi.Input[Mapping[str, str]] | None = None
        if namespace != DEFAULT_NAMESPACE and not existing:
            metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": namespace}
            if labels:
                metadata["labels"] = labels
            whole = self.main_child(namespace, custom_timeouts=DELETION)
            created.append(k8s.core.v1.Namespace(*whole, metadata=metadata))
            self._owner = {}
        inside = pulumi.ResourceOptions(parent=self, depends_on=created)
        keys_of = {
            secret.name: sorted({other.key for other in token_secrets if other.name == secret.name})
            for secret in token_secrets
        }
        if token_secrets and token_from is not None:
            self._sync_token(name, namespace, keys_of, token_from, inside)
        for secret, keys in keys_of.items() if token_from is None else ():
            k8s.core.v1.Secret(
                *named(f"{namespace}/{secret}", inside),
                metadata={"name": secret, "namespace": namespace},
                type="Opaque",
                string_data=dict.fromkeys(keys, pulumi.Output.secret(token if token is not None else "")),
            )
        if api_key is not None:
            k8s.core.v1.Secret(
                *named(f"{namespace}/{API_KEY_SECRET}", inside),
                metadata={"name": API_KEY_SECRET, "namespace": namespace},
                type="Opaque",
                string_data={API_KEY: pulumi.Output.secret(api_key)},
            )
        for account in service_accounts:
            k8s.core.v1.ServiceAccount(
                *named(f"{namespace}/{account}", inside), metadata={"name": account, "namespace": namespace}
            )
        kueue = kueue_hook(f"namespace {name}") if local_queues else None
        for queue in local_queues:
            spec = {"clusterQueue": queue.cluster_queue}
            child = pulumi.ResourceOptions(parent=self, depends_on=created, hooks=kueue)
            custom_object(KUEUE_API, "LocalQueue", queue.name, spec, child, namespace=namespace)

        # The cluster serves ComputeDomains some time after the driver exists.
        served = pulumi.ResourceOptions(hooks=kueue_hook(f"claims of {name}")) if DOMAIN in claims else None
        for written in written_objects(namespace, tuple(claims)):
            custom_object(
                *(written["apiVersion"], written["kind"], written["metadata"]["name"], written["spec"]),
                pulumi.ResourceOptions.merge(inside, served),
                namespace=namespace,
                suffix="-claims",
            )

        self.namespace_name = pulumi.Output.all(*(resource.id for resource in created)).apply(lambda _: namespace)
        self.register_outputs({"namespaceName": self.namespace_name})

    def run_owner(self) -> pulumi.Input[Mapping[str, str]]:
        """Name and uid of the owner of runs, which ends them. Empty if the component deletes the namespace."""
        if self._owner is None:
            self._owner = create_owner(self._namespace, name_of_owner(), self)
        return self._owner

    def _sync_token(
        self,
        name: str,
        namespace: str,
        keys_of: dict[str, list[str]],
        token_from: SecretManager,
        inside: pulumi.ResourceOptions,
    ) -> None:
        """Let GKE write the Secrets, each with the token under its keys."""
        _, project, _, secret_id = token_from.secret.split("/")
        look_up(
            lambda: gcp.secretmanager.get_secret(
                secret_id=secret_id, project=project, opts=pulumi.InvokeOptions(parent=self)
            ),
            f"There must be a secret {secret_id} in project {project} whose latest version is the Hugging Face token, "
            "and you must be allowed to see it (not its value). Check its name, or create it: "
            f"gcloud secrets create {secret_id} --project {project} --data-file=FILE",
        )
        account = k8s.core.v1.ServiceAccount(
            *named(f"{namespace}/{TOKEN_SYNC}", inside), metadata={"name": TOKEN_SYNC, "namespace": namespace}
        )
        number = project_number(token_from.project, f"The grant on secret {secret_id} needs", self)
        member = principal(number, token_from.project, namespace, TOKEN_SYNC)
        grant = gcp.secretmanager.SecretIamMember(
            *self.child(f"{secret_id}/{namespace}/{TOKEN_SYNC}"),
            project=project,
            secret_id=secret_id,
            role=SECRET_ACCESSOR,
            member=after_workload_pool(member, token_from.workload_pool),
        )
        source = {"resourceName": f"{token_from.secret}/versions/latest", "path": TOKEN_PATH}
        # The cluster serves these kinds only after its setting has taken effect.
        hooks = kueue_hook(f"token of {name}")
        provider_class = custom_object(
            *(SECRET_PROVIDER_CLASS_API, "SecretProviderClass", TOKEN_SYNC),
            {"provider": "gke", "parameters": {"secrets": yaml.safe_dump([source], sort_keys=False)}},
            pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(hooks=hooks)),
            namespace=namespace,
            suffix="-source",
        )
        after = pulumi.ResourceOptions(parent=self, depends_on=[account, grant, provider_class], hooks=hooks)
        for secret, keys in keys_of.items():
            data = [{"sourcePath": TOKEN_PATH, "targetKey": key} for key in keys]
            sync = {
                "serviceAccountName": TOKEN_SYNC,
                "secretProviderClassName": TOKEN_SYNC,
                "secretObject": {"type": "Opaque", "data": data},
            }
            # It has the Secret's name.
            custom_object(SECRET_SYNC_API, "SecretSync", secret, sync, after, namespace=namespace, suffix="-sync")
