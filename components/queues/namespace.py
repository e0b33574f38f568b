"""A namespace with the Secrets, service accounts and local queues that its workloads need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import yaml

from gke_ai.catalog.engines.gateways import API_KEY, API_KEY_SECRET
from gke_ai.catalog.fabric.nvlink import DOMAIN, written_objects
from gke_ai.catalog.project.identities import SECRET_ACCESSOR
from gke_ai.catalog.versions import KUEUE_API, SECRET_PROVIDER_CLASS_API, SECRET_SYNC_API
from gke_ai.components.arguments import Input, Refused, takes
from gke_ai.components.base import Component, custom_object, look_up, named
from gke_ai.components.bucket import ModelBucket
from gke_ai.components.cluster.cluster import GkeCluster
from gke_ai.components.cluster.connection import InCluster, project_in
from gke_ai.components.queues.kueue import KueueStack
from gke_ai.components.support.identity import member_of, project_number
from gke_ai.components.support.retry import kueue_hook
from gke_ai.components.support.run_owner import DELETION, create_owner, name_of_owner
from gke_ai.manifests.cluster_queue import local_queue
from gke_ai.settings.model import Grant, TokenSecret, Weight
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.model.settings import PodSecurity
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import DEFAULT_NAMESPACE

# The service account that may read the token. No workload runs as it.
TOKEN_SYNC = "hf-token-sync"
TOKEN_PATH = "token"


@dataclass(frozen=True)
class SecretManager:
    """A secret of Secret Manager, and the project and pool of the identity that reads it."""

    secret: Input[str]
    """`projects/PROJECT/secrets/ID`. One that exists is looked up; of an output, the secret may be created with it."""
    project: Input[str]
    """Id of the cluster's project."""
    workload_pool: Input[str]
    """The project's workload identity pool, an output of the cluster. The grant waits for it."""


class WorkloadNamespaceArguments(InCluster):
    name: DnsLabel = ""
    """Name of the namespace. Default: the component's name."""
    kueue: KueueStack | None = None
    """Kueue with the cluster queues of `queues`. The namespace is deleted before it, which releases its workloads."""
    queues: Mapping[str, str] = {}
    """Local queues to create, each with the cluster queue that provides its quota."""
    weights: Mapping[str, Weight] = {}
    """Weights of local queues in the usage-based order of their cluster queue. Default: 1 each."""
    hf_token: Input[str] | None = None
    """The Hugging Face token, a Pulumi secret."""
    hf_token_from: SecretManager | None = None
    """Secret that GKE reads the token from, without Pulumi. Needs `secret_sync` on the cluster."""
    token_secrets: Sequence[TokenSecret] | None = None
    """Kubernetes Secrets to create with the token, each with its key. Default: `hf-secret`, if there is a token."""
    buckets: Sequence[ModelBucket] = ()
    """Buckets that the service accounts of the namespace may read and write."""
    service_accounts: Sequence[str] = ()
    """Service accounts to create. `default` always exists."""
    existing: bool = False
    """The cluster has the namespace. It is neither created, changed nor deleted."""
    labels: Mapping[str, str] | None = None
    """Labels of the namespace. Not for one that exists."""
    pod_security: PodSecurity | None = None
    """Pod Security level, which a tenant needs: the API server refuses pods below it, and warns about their Jobs and
    Deployments. Not for one that exists."""
    api_key: Input[str] | None = None
    """API key of the gateway's clients, a Pulumi secret. The Secret `gateway-api-key` holds it."""
    claims: Sequence[str] = ()
    """Names of the templates by which pods claim devices: `rdma` or `rdma-4` for the eight or four NICs of a node with
    an RDMA network, `nvlink` for channels of NVLink. NVIDIA's driver writes the last one."""


class WorkloadNamespace(Component):
    """A namespace with its token Secrets, service accounts and local queues.

    The namespace `default` exists in every cluster. There, and with `existing`, the component creates everything except
    the namespace.

    With `hf_token_from`, GKE creates the Secrets from a secret of Secret Manager and keeps them up to date. The
    component creates a SecretProviderClass, a SecretSync for each Secret, and a service account that may read only this
    secret. GKE does not touch a Secret that already exists. When you switch from `hf_token`, Pulumi deletes its Secret
    at the end of the update, and GKE creates the new one within minutes. When you switch back, delete the SecretSync
    first, or its Secret is in the way.

    Local queues belong here and not to `KueueStack`: the namespace is created after Kueue and deleted before it,
    because its workloads hold quota that only a running Kueue releases.

    Refused: token secrets without exactly one of `hf_token` and `hf_token_from`; RunError for a secret that
    doesn't exist, or a project that can't be read.

    Sources: https://kubernetes.io/docs/concepts/configuration/secret/,
    https://cloud.google.com/secret-manager/docs/sync-k8-secrets,
    https://kueue.sigs.k8s.io/docs/concepts/local_queue/

    Example:
        WorkloadNamespace("research", cluster=cluster, kueue=kueue, queues={"team": "gpus"}, buckets=[models])
    """

    namespace_name: pulumi.Output[str]

    @takes(WorkloadNamespaceArguments)
    def __init__(self, name: str, args: WorkloadNamespaceArguments) -> None:
        super().__init__(name, args)
        self.cluster, self.kueue, self.queues, self._buckets = args.place(), args.kueue, args.queues, args.buckets
        if self.kueue is not None and self.kueue.queue_names is not None:
            for queue, cluster_queue in args.queues.items():
                if cluster_queue not in self.kueue.queue_names:
                    cause = f"{self.kueue.called} has no cluster queue {cluster_queue}. Kueue would admit nothing here"
                    remedy = nearest(cluster_queue, self.kueue.queue_names)
                    raise Refused(f"WorkloadNamespace {name}", Problem(f"queues.{queue}", cause, remedy))
        namespace, token, token_from = args.name, args.hf_token, args.hf_token_from
        sources = sum(source is not None and source != "" for source in (token, token_from))
        token_secrets = args.token_secrets
        if token_secrets is None:
            token_secrets = [TokenSecret()] if sources else []
        if token_secrets and sources != 1:
            count = "both are set" if sources else "neither is set"
            cause = f"needs either hf_token or hf_token_from, and {count}"
            raise Refused(f"WorkloadNamespace {name}", Problem("tokenSecrets", cause, "Set one of them"))
        self.token_secret = next(iter(token_secrets), None)
        created: list[pulumi.CustomResource] = []
        self._namespace, self.pod_security = namespace, args.pod_security
        self._owner: pulumi.Input[Mapping[str, str]] | None = None
        if namespace != DEFAULT_NAMESPACE and not args.existing:
            metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": namespace}
            if labels := {**(args.labels or {}), **pod_security(args.pod_security)}:
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
            if self.cluster:
                self.cluster.need(
                    f"WorkloadNamespace {name}", "secret_sync", "GKE would write no Secret with the token"
                )
            self._sync_token(name, namespace, keys_of, token_from, inside)
        for secret, keys in keys_of.items() if token_from is None else ():
            k8s.core.v1.Secret(
                *named(f"{namespace}/{secret}", inside),
                metadata={"name": secret, "namespace": namespace},
                type="Opaque",
                string_data=dict.fromkeys(keys, pulumi.Output.secret(token if token is not None else "")),
            )
        if args.api_key is not None:
            k8s.core.v1.Secret(
                *named(f"{namespace}/{API_KEY_SECRET}", inside),
                metadata={"name": API_KEY_SECRET, "namespace": namespace},
                type="Opaque",
                string_data={API_KEY: pulumi.Output.secret(args.api_key)},
            )
        for account in args.service_accounts:
            k8s.core.v1.ServiceAccount(
                *named(f"{namespace}/{account}", inside), metadata={"name": account, "namespace": namespace}
            )
        kueue = kueue_hook(f"namespace {name}") if args.queues else None
        for queue, cluster_queue in args.queues.items():
            spec = local_queue(cluster_queue, args.weights.get(queue))
            child = pulumi.ResourceOptions(parent=self, depends_on=created, hooks=kueue)
            custom_object(KUEUE_API, "LocalQueue", queue, spec, child, namespace=namespace)

        # The cluster serves ComputeDomains some time after the driver exists.
        served = pulumi.ResourceOptions(hooks=kueue_hook(f"claims of {name}")) if DOMAIN in args.claims else None
        for written in written_objects(namespace, tuple(args.claims)):
            custom_object(
                *(written["apiVersion"], written["kind"], written["metadata"]["name"], written["spec"]),
                pulumi.ResourceOptions.merge(inside, served),
                namespace=namespace,
                suffix="-claims",
            )

        self._grant(namespace, args)
        self.namespace_name = pulumi.Output.all(*(resource.id for resource in created)).apply(lambda _: namespace)
        self.register_outputs({"namespaceName": self.namespace_name})

    @property
    def called(self) -> str:
        return self._namespace

    def _grant(self, namespace: str, args: WorkloadNamespaceArguments) -> None:
        """Let the service accounts use the buckets."""
        if not args.buckets:
            return
        project = project_in(None, self.cluster, f"WorkloadNamespace {self._name}")
        number = project_number(project, f"The grants of namespace {namespace} need", self)
        pool = self.cluster.workload_pool if isinstance(self.cluster, GkeCluster) else ""
        for bucket in args.buckets:
            for account in ("default", *args.service_accounts):
                gcp.storage.BucketIAMMember(
                    *self.child(f"{bucket.called}/{namespace}/{account}"),
                    bucket=bucket.bucket_name,
                    role=Grant(namespace=namespace).role,
                    member=member_of(number, project, namespace, account, pool),
                )

    @property
    def bucket_names(self) -> list[str]:
        """Names of the buckets that its service accounts may read and write."""
        return [bucket.called for bucket in self._buckets]

    def may_use(self, bucket: ModelBucket) -> bool:
        """Whether a service account of the namespace has a role on the bucket."""
        return bucket in self._buckets or any(grant.namespace == self._namespace for grant in bucket.section.grants)

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
        secret, secret_name = pulumi.Output.from_input(token_from.secret), "token"
        if isinstance(token_from.secret, str):
            _, secret_project, _, secret_name = token_from.secret.split("/")
            look_up(
                lambda: gcp.secretmanager.get_secret(
                    secret_id=secret_name, project=secret_project, opts=pulumi.InvokeOptions(parent=self)
                ),
                f"There must be a secret {secret_name} in project {secret_project} whose latest version is the Hugging "
                "Face token, and you must be allowed to see it (not its value). Check its name, or create it: "
                f"gcloud secrets create {secret_name} --project {secret_project} --data-file=FILE",
            )
        account = k8s.core.v1.ServiceAccount(
            *named(f"{namespace}/{TOKEN_SYNC}", inside), metadata={"name": TOKEN_SYNC, "namespace": namespace}
        )
        number = project_number(token_from.project, f"The grant on secret {secret_name} needs", self)
        grant = gcp.secretmanager.SecretIamMember(
            *self.child(f"{secret_name}/{namespace}/{TOKEN_SYNC}"),
            project=secret.apply(lambda path: path.split("/")[1]),
            secret_id=secret.apply(lambda path: path.split("/")[3]),
            role=SECRET_ACCESSOR,
            member=member_of(number, token_from.project, namespace, TOKEN_SYNC, token_from.workload_pool),
        )
        secrets = secret.apply(
            lambda path: yaml.safe_dump(
                [{"resourceName": f"{path}/versions/latest", "path": TOKEN_PATH}], sort_keys=False
            )
        )
        # The cluster serves these kinds only after its setting has taken effect.
        hooks = kueue_hook(f"token of {name}")
        provider_class = custom_object(
            *(SECRET_PROVIDER_CLASS_API, "SecretProviderClass", TOKEN_SYNC),
            {"provider": "gke", "parameters": {"secrets": secrets}},
            pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(hooks=hooks)),
            namespace=namespace,
            suffix="-source",
        )
        after = pulumi.ResourceOptions(parent=self, depends_on=[account, grant, provider_class], hooks=hooks)
        for synced, keys in keys_of.items():
            data = [{"sourcePath": TOKEN_PATH, "targetKey": key} for key in keys]
            sync = {
                "serviceAccountName": TOKEN_SYNC,
                "secretProviderClassName": TOKEN_SYNC,
                "secretObject": {"type": "Opaque", "data": data},
            }
            # It has the Secret's name.
            custom_object(SECRET_SYNC_API, "SecretSync", synced, sync, after, namespace=namespace, suffix="-sync")


def pod_security(level: PodSecurity | None) -> dict[str, str]:
    """The labels of a level: https://kubernetes.io/docs/concepts/security/pod-security-admission/"""
    modes = ("enforce", "warn", "audit") if level else ()
    return {f"pod-security.kubernetes.io/{mode}": str(level) for mode in modes}
