"""Programs that somebody else may write, from the components alone: what they register, and how they are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest

from gke_ai.components import (
    ClusterConnection,
    ClusterQueue,
    ComputeClass,
    FinetuneJob,
    FlexStartTpuPool,
    GkeCluster,
    GpuNodePool,
    InferenceGateway,
    JetStreamAutoscaling,
    JetStreamServer,
    KueueStack,
    MetricsAdapter,
    ModelBucket,
    MultisliceJob,
    Route,
    SecretManager,
    Tenant,
    TgiServer,
    TpuBatchJob,
    TpuNodePool,
    TrainingJob,
    VllmServer,
    WorkloadNamespace,
)
from gke_ai.components.arguments import Refused
from gke_ai.components.serving.server import ModelServer
from gke_ai.components.stated import MachineShape, Region
from gke_ai.components.workloads.arguments import PodParts, SecretKey
from gke_ai.settings.model import Autoscaling, FlavorQuota, Spot
from tests.support.recorder import PROJECT, ROOT, Record, record

Run = Callable[..., Record]
HOSTNAME = "cloud.google.com/gke-nodepool"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Records a program whose provider has a project."""

    def recorded(program: Callable[[], object], preview: bool = False, **config: str) -> Record:
        pulumi.runtime.set_all_config({"gcp:project": PROJECT, **config})
        return record(program, preview, monkeypatch)

    return recorded


def pod(found: Record, kind: str, name: str | None = None) -> dict[str, Any]:
    spec = found.one(kind, name).inputs["spec"]
    if "replicatedJobs" in spec:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    content: dict[str, Any] = spec["template"]["spec"]
    return content


def serving_and_training(region: str = "us-central1", prefix: str = "") -> TgiServer:
    """Serving and training on one pool, under Kueue."""
    cluster = GkeCluster(f"{prefix}ml", location=region, mode="standard")
    l4 = GpuNodePool(
        f"{prefix}l4", cluster=cluster, machine_type="g2-standard-24", zones=[f"{region}-a"], nodes_per_zone=2
    )
    models = ModelBucket(f"{prefix}models", location=region)
    kueue = KueueStack(
        f"{prefix}kueue",
        cluster=cluster,
        queues=[ClusterQueue("gpus", pools=[l4])],
        priorities={"training": 20, "serving": 30},
    )
    llm = WorkloadNamespace(
        f"{prefix}llm",
        cluster=cluster,
        kueue=kueue,
        queues={"team": "gpus"},
        hf_token=pulumi.Output.secret("hf_canary"),
        buckets=[models],
    )
    gemma = TgiServer(
        f"{prefix}gemma",
        namespace=llm,
        pool=l4,
        gpus=2,
        model="google/gemma-2-9b-it",
        queue="team",
        priority_class="serving",
    )
    FinetuneJob(
        f"{prefix}finetune",
        namespace=llm,
        pool=l4,
        image="example.com/train:1",
        pods=2,
        gpus_per_pod=1,
        queue="team",
        priority_class="training",
        volume=models.volume("/data"),
    )
    pulumi.export(f"{prefix}gemma", gemma.url)
    return gemma


# --- the eight programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preview", [True, False])
def test_serving_and_training_share_a_pool_of_which_nothing_is_repeated(preview: bool, run: Run) -> None:
    found = run(serving_and_training, preview)
    server, job = found.one("Deployment"), found.one("Job")
    for workload in (server, job):
        assert {"NodePool l4", "LocalQueue team", "Secret hf-secret"} <= found.waits_for(workload)
        labels = workload.inputs["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "team"
    for kind in ("Deployment", "Job"):
        assert pod(found, kind)["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4", HOSTNAME: "l4"}
        token = {"name": "hf-secret", "key": "hf_api_token"}
        assert any(item.get("valueFrom", {}).get("secretKeyRef") == token for item in env(pod(found, kind)))
    (flavor,) = found.one("ClusterQueue").inputs["spec"]["resourceGroups"][0]["flavors"]
    quota = {resource["name"]: resource["nominalQuota"] for resource in flavor["resources"]}
    assert (flavor["name"], quota["nvidia.com/gpu"]) == ("l4", "4")
    assert len(found.all("BucketIAMMember")) == 1
    assert found.one("Bucket").inputs["name"] == f"{PROJECT}-models"
    assert pod(found, "Job")["containers"][0]["image"] == "example.com/train:1"


def env(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = spec["containers"][0]["env"]
    return variables


def test_a_program_has_all_of_it_twice_without_an_edge_between_the_two(run: Run) -> None:
    def both() -> None:
        serving_and_training("us-central1", "us-")
        serving_and_training("europe-west4", "eu-")

    found = run(both)
    assert {resource.name[:3] for resource in found.resources.values()} == {"us-", "eu-"}
    crossing = [
        (resource.name, urn)
        for resource in found.resources.values()
        for urn in resource.dependencies
        if not urn.rpartition("::")[2].startswith(resource.name[:3])
    ]
    assert crossing == []
    assert {pool.inputs["location"] for pool in found.all("NodePool")} == {"us-central1", "europe-west4"}


def test_a_job_gets_all_of_its_slice_from_the_pool(run: Run) -> None:
    def program() -> None:
        cluster = GkeCluster("ml", location="us-east5", mode="standard")
        pool = FlexStartTpuPool("slice", cluster=cluster, version="v6e", topology="4x4", zones=["us-east5-b"])
        TpuBatchJob("bench", namespace=WorkloadNamespace("research", cluster=cluster), pool=pool, command=["true"])

    found = run(program)
    job = found.one("Job").inputs["spec"]
    assert (job["completions"], job["completionMode"]) == (4, "Indexed")
    assert pod(found, "Job")["nodeSelector"][HOSTNAME] == "slice"
    assert pod(found, "Job")["containers"][0]["resources"]["limits"]["google.com/tpu"] == "4"


def test_components_are_put_into_clusters_that_something_else_made(run: Run) -> None:
    def program() -> None:
        theirs = GkeCluster.existing("theirs", location="us-central1")
        KueueStack.existing("kueue", cluster=theirs, priorities={"high": 1})
        other = ClusterConnection("other", kubeconfig=pulumi.Output.secret("{}"), identifier="2026")
        VllmServer("gemma", cluster=other, namespace="llm", accelerator="nvidia-l4", model="google/gemma-3-4b-it")

    found = run(program)
    assert found.all("Cluster") == found.all("Release") == []
    assert found.one("PriorityClass").inputs["value"] == 1
    assert {"kubernetes other"} <= {name.rpartition(":")[2] for name in found.waits_for(found.one("Deployment"))}


def test_an_autoscaler_brings_its_adapter_once_for_the_whole_cluster(run: Run) -> None:
    def program() -> None:
        cluster = GkeCluster("ml", location="us-west4", mode="standard")
        pool = TpuNodePool("v5e", cluster=cluster, version="v5e", topology="2x4", nodes_per_zone=2)
        server = JetStreamServer(
            "maxengine",
            namespace=WorkloadNamespace("jetstream", cluster=cluster),
            pool=pool,
            model="gemma-7b",
            checkpoint="gs://models/gemma",
            autoscaled=True,
        )
        metrics: list[Any] = [{"metric": "prefillBacklog", "target": 10}]
        JetStreamAutoscaling("ours", server=server, max_replicas=2, metrics=metrics)
        JetStreamAutoscaling("theirs", cluster=cluster, deployment="maxengine-server", max_replicas=2, metrics=metrics)

    found = run(program)
    assert len(found.all("MetricsAdapter")) == 1
    targets = {item.inputs["spec"]["scaleTargetRef"]["name"] for item in found.all("HorizontalPodAutoscaler")}
    assert targets == {"maxengine", "maxengine-server"}
    for scaler in found.all("HorizontalPodAutoscaler"):
        assert "APIService v1beta1.external.metrics.k8s.io" in found.waits_for(scaler)
    assert found.one("Deployment", "maxengine").ignored == ("spec.replicas",)


def test_a_gateway_divides_requests_among_servers(run: Run) -> None:
    def program() -> None:
        cluster = GkeCluster("ml", location="us-central1", gateway_api=True)
        llm = WorkloadNamespace("llm", cluster=cluster)
        gemma, candidate = (
            VllmServer(name, namespace=llm, accelerator="nvidia-l4", model="google/gemma-3-4b-it")
            for name in ("gemma", "gemma-next")
        )
        InferenceGateway("models", plain_http=True, routes=[Route(servers={gemma: 90, candidate: 10})])

    found = run(program)
    (rule,) = found.one("HTTPRoute").inputs["spec"]["rules"]
    assert {item["name"]: item["weight"] for item in rule["backendRefs"]} == {"gemma": 90, "gemma-next": 10}
    assert "Deployment gemma" not in found.waits_for(found.one("Gateway"))
    assert {"Gateway models", "Deployment gemma", "Deployment gemma-epp"} <= found.waits_for(found.one("HTTPRoute"))


def test_outputs_are_arguments_where_they_decide_no_shape(run: Run) -> None:
    def program() -> None:
        project = gcp.organizations.Project("mine", project_id="made-here", name="mine")
        network = gcp.compute.Network("net", project=project.project_id)
        cluster = GkeCluster("ml", project=project.project_id, location="us-central1", network=network.id)
        llm = WorkloadNamespace("llm", cluster=cluster, hf_token=project.number)
        digest = network.self_link.apply(lambda _: "example.com/vllm@sha256:0")
        more = {"BUCKET": project.name}
        VllmServer(
            "gemma", namespace=llm, accelerator="nvidia-l4", model="google/gemma-3-4b-it", image=digest, env=more
        )

    found = run(program)
    cluster = found.one("Cluster").inputs
    assert (cluster["project"], cluster["network"]) == ("made-here", "net-id")
    assert found.one("kubernetes").inputs["clusterIdentifier"] == "made-here/us-central1/ml/autopilot/net-id/default"
    container = pod(found, "Deployment")["containers"][0]
    assert container["image"] == "example.com/vllm@sha256:0"
    assert {"name": "BUCKET", "value": "mine"} in container["env"]
    run(program, preview=True)


def test_slices_that_are_equal_are_one_flavor_of_which_a_run_gets_all(run: Run) -> None:
    def program() -> None:
        cluster = standard()
        slices = [
            TpuNodePool(f"slice-{number}", cluster=cluster, version="v6e", topology="4x4", zones=["us-central1-b"])
            for number in range(3)
        ]
        queues = [ClusterQueue("tpus", pools=slices), ClusterQueue("gpus", pools=[l4(cluster)])]
        kueue = KueueStack("kueue", cluster=cluster, jobset=True, queues=queues)
        research = WorkloadNamespace("research", cluster=cluster, kueue=kueue, queues={"team": "tpus"})
        MultisliceJob("train", namespace=research, slices=3, pools=slices, queue="team", command=["python", "t.py"])

    found = run(program)
    assert {item.object_name for item in found.all("ResourceFlavor")} == {"slice-0", "l4"}
    (group,) = found.one("ClusterQueue", "tpus").inputs["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert {"name": "google.com/tpu", "nominalQuota": "48"} in flavor["resources"]


def test_a_tenant_takes_name_queues_buckets_and_level_from_its_namespace(run: Run) -> None:
    def program() -> None:
        models = ModelBucket("models", location="us-central1")
        cluster = standard(network_policy="dataplaneV2")
        Tenant("rights", namespace=team(cluster, buckets=[models], pod_security="restricted"))

    found = run(program)
    assert found.one("Namespace", "llm").inputs["metadata"]["labels"] == {
        f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
    }
    policy = found.one("ValidatingAdmissionPolicy")
    assert policy.inputs["metadata"]["name"] == "tenant-llm"
    assert all(name in str(policy.inputs["spec"]) for name in ("team", "models"))
    assert "Namespace llm" in found.waits_for(policy)


def test_a_pool_beside_the_name_of_a_cluster_leaves_private_nodes_to_it(run: Run) -> None:
    place: dict[str, Any] = {"cluster": "theirs", "location": "us-central1", "zones": ["us-central1-a"]}
    found = run(lambda: GpuNodePool("l4", machine_type="g2-standard-24", nodes_per_zone=1, **place))
    assert "networkConfig" not in found.one("NodePool").inputs


def test_a_secret_of_the_same_program_provides_the_token(run: Run) -> None:
    def program() -> None:
        cluster = standard(secret_sync=True)
        made = gcp.secretmanager.Secret("hf", secret_id="hf", replication={"auto": {}})
        source = SecretManager(made.name.apply(lambda _: "projects/7/secrets/hf"), "p", cluster.workload_pool)
        WorkloadNamespace("llm", cluster=cluster, hf_token_from=source)

    found = run(program)
    grant = found.one("SecretIamMember").inputs
    assert (grant["project"], grant["secretId"]) == ("7", "hf")
    assert "projects/7/secrets/hf/versions/latest" in str(found.one("SecretProviderClass").inputs)
    run(program, preview=True)


def test_ranges_that_are_outputs_are_not_the_same_range(run: Run) -> None:
    def program() -> None:
        made = gcp.compute.Subnetwork("nodes", network="n", ip_cidr_range="10.0.0.0/16", region="us-central1")
        pods, services = made.id.apply(lambda _: "of-pods"), made.id.apply(lambda _: "of-services")
        l4(standard(network="n", subnetwork=made.id, pods_range=pods, services_range=services))

    run(program, preview=True)
    policy = run(program).one("Cluster", "ml").inputs["ipAllocationPolicy"]
    assert policy == {"clusterSecondaryRangeName": "of-pods", "servicesSecondaryRangeName": "of-services"}


def test_a_program_states_a_machine_and_a_region_that_the_catalog_lacks(run: Run) -> None:
    def program() -> None:
        place = Region("us-newplace1", zones=["us-newplace1-a", "us-newplace1-d"])
        shape = MachineShape("a9-highgpu-8g", vcpus=224, memory_gib=3968, gpu="nvidia-x9", gpus=8)
        cluster = GkeCluster("ml", location=place, mode="standard", project="p")
        pool = GpuNodePool("x9", cluster=cluster, machine_type=shape, nodes_per_zone=1)
        models = ModelBucket("models", location=place, project="p")
        kueue = KueueStack("kueue", cluster=cluster, queues=[ClusterQueue("gpus", pools=[pool])])
        llm = WorkloadNamespace("llm", cluster=cluster, kueue=kueue, queues={"team": "gpus"}, buckets=[models])
        VllmServer("gemma", namespace=llm, pool=pool, gpus=8, model="google/gemma-3-4b-it", queue="team")

    found = run(program)
    nodes = found.one("NodePool", "x9").inputs
    assert nodes["nodeLocations"] == ["us-newplace1-a", "us-newplace1-d"]
    gpus = nodes["nodeConfig"]["guestAccelerators"][0]
    assert (gpus["type"], gpus["count"]) == ("nvidia-x9", 8)
    (group,) = found.one("ClusterQueue").inputs["spec"]["resourceGroups"]
    quota = {resource["name"]: resource["nominalQuota"] for resource in group["flavors"][0]["resources"]}
    assert quota["nvidia.com/gpu"] == "16"
    assert pod(found, "Deployment")["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


# --- open at the edges ------------------------------------------------------------------------------------------------


def test_pods_have_what_the_program_adds(run: Run) -> None:
    parts = PodParts(
        tolerations=[{"key": "team", "operator": "Exists"}],
        volumes=[{"name": "cache", "emptyDir": {}}],
        volume_mounts=[{"name": "cache", "mountPath": "/cache"}],
        secret_env={"KEY": SecretKey("wandb", "token")},
        sidecars=[{"name": "log", "image": "log:1"}, {"name": "proxy", "image": "p:1", "restartPolicy": "Always"}],
    )

    def program() -> None:
        cluster = ClusterConnection("theirs", kubeconfig="kubeconfig")
        common: dict[str, Any] = {"cluster": cluster, "namespace": "llm", "accelerator": "nvidia-l4", "pod": parts}
        VllmServer("s", model="google/gemma-3-4b-it", **common)
        TrainingJob("t", image="i:1", **common)
        TrainingJob("u", image="i:1", **{**common, "pod": PodParts()})

    found = run(program)
    runs = {item.object_name.partition("-")[0]: item for item in found.all("JobSet")}
    template = runs["t"].inputs["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for spec in (pod(found, "Deployment"), template):
        assert {"key": "team", "operator": "Exists"} in spec["tolerations"]
        assert {"name": "cache", "mountPath": "/cache"} in spec["containers"][0]["volumeMounts"]
        assert {"name": "cache", "emptyDir": {}} in spec["volumes"]
        secret = {"secretKeyRef": {"name": "wandb", "key": "token"}}
        assert {"name": "KEY", "valueFrom": secret} in spec["containers"][0]["env"]
        assert [item["name"] for item in spec["containers"][1:]] == ["log"]
        assert "proxy" in [item["name"] for item in spec["initContainers"]]
    names = {name: item.object_name.partition("-")[2] for name, item in runs.items()}
    assert names["t"] != names["u"], "they are part of what a run is"


def test_kueue_queues_further_kinds_with_further_values(run: Run) -> None:
    def program() -> None:
        cluster = ClusterConnection("theirs", kubeconfig="kubeconfig")
        KueueStack(
            "kueue",
            cluster=cluster,
            frameworks=["kubeflow.org/mpijob"],
            configuration={"fairSharing": {"enable": True}},
            values={"controllerManager": {"manager": {"podAnnotations": {"a": "b"}}}},
        )

    values = run(program).one("Release").inputs["values"]
    manager = values["managerConfig"]["controllerManagerConfigYaml"]
    assert "kubeflow.org/mpijob" in manager
    assert "fairSharing" in manager
    assert values["controllerManager"]["manager"]["podAnnotations"] == {"a": "b"}
    assert values["controllerManager"]["manager"]["image"]["repository"], "the component's own stay"


# --- refused ----------------------------------------------------------------------------------------------------------


def standard(**more: Any) -> GkeCluster:
    return GkeCluster("ml", location="us-central1", mode="standard", **more)


def l4(cluster: GkeCluster, **more: Any) -> GpuNodePool:
    return GpuNodePool(
        "l4", cluster=cluster, machine_type="g2-standard-24", zones=["us-central1-a"], nodes_per_zone=2, **more
    )


def theirs() -> ClusterConnection:
    return ClusterConnection("theirs", kubeconfig="kubeconfig")


def gemma(name: str = "gemma", **more: Any) -> VllmServer:
    return VllmServer(name, **{"model": "google/gemma-3-4b-it", "accelerator": "nvidia-l4", **more})


def team(cluster: GkeCluster, quota: Mapping[str, str] | None = None, **more: Any) -> WorkloadNamespace:
    """A namespace with a queue over two nodes with two GPUs each."""
    stated = [] if quota is None else [FlavorQuota(flavor="l4", quota=dict(quota))]
    queues = [ClusterQueue("gpus", pools=[l4(cluster)], flavors=stated)]
    kueue = KueueStack("kueue", cluster=cluster, queues=queues)
    return WorkloadNamespace("llm", cluster=cluster, kueue=kueue, queues={"team": "gpus"}, **more)


def two_models(cluster: ClusterConnection) -> InferenceGateway:
    place: dict[str, Any] = {"cluster": cluster, "namespace": "llm", "max_model_len": 8192}
    shares: dict[ModelServer[Any], int] = {gemma(**place): 1, gemma("qwen", model="Qwen/Qwen3-8B", **place): 1}
    return InferenceGateway("g", plain_http=True, routes=[Route(servers=shares)])


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a misspelled argument": (
        lambda: l4(standard(), capactiy=Spot(mode="spot")),
        "capactiy: capactiy is not a key of the component. It would have no effect. Did you mean capacity?",
    ),
    "a region that does not exist": (
        lambda: GkeCluster("ml", location="us-centrl1"),
        "location: us-centrl1 is not a region of Google Cloud. GKE would refuse the cluster. Did you mean us-central1?",
    ),
    "a zone of another region": (
        lambda: GpuNodePool(
            "p", cluster=standard(), machine_type="g2-standard-24", zones=["europe-west4-a"], nodes_per_zone=1
        ),
        "zones[0]: europe-west4-a is not in us-central1, the cluster's region.",
    ),
    "an output that decides what is created": (
        lambda: GpuNodePool("p", cluster=standard(), machine_type=theirs().cluster_name, nodes_per_zone=1),  # type: ignore[arg-type]
        "machine_type: is the output of a resource, which is known only during an update.",
    ),
    "a slice that GKE does not have": (
        lambda: TpuNodePool("p", cluster=standard(), version="v6e", topology="3x3"),
        "topology: 3x3 is not a topology of TPU v6e.",
    ),
    "a pool of Autopilot": (
        lambda: GpuNodePool(
            "p",
            cluster=GkeCluster("auto", location="us-central1"),
            machine_type="g2-standard-24",
            autoscaling=Autoscaling(max_nodes=2),
        ),
        "cluster: auto is an Autopilot cluster, in which Google creates the nodes. GKE would refuse the pool.",
    ),
    "more GPUs than a node has": (
        lambda: VllmServer("s", namespace="llm", pool=l4(standard()), gpus=4, model="google/gemma-3-4b-it"),
        "gpus: a replica of the server requests 4 GPUs, and a node of pool l4 (g2-standard-24) has 2 GPUs for pods.",
    ),
    "a model that does not fit": (
        lambda: VllmServer(
            "s", cluster=theirs(), namespace="llm", accelerator="nvidia-l4", model="google/gemma-2-27b-it"
        ),
        "google/gemma-2-27b-it needs at least",
    ),
    "no cluster": (
        lambda: KueueStack("kueue"),
        "cluster: no cluster is given. Kubernetes objects would go to whatever cluster a kubeconfig of this machine "
        "names. Pass cluster=…, or opts with a Kubernetes provider.",
    ),
    "a name where a component is needed": (
        lambda: InferenceGateway("g", cluster=theirs(), plain_http=True, routes=["gemma"]),  # type: ignore[list-item]
        "routes[0]: the value is text, and must be a mapping",
    ),
    "an autoscaler for a server with fixed replicas": (
        lambda: JetStreamAutoscaling(
            "a",
            server=VllmServer(
                "s", cluster=theirs(), namespace="llm", accelerator="nvidia-l4", model="google/gemma-3-4b-it"
            ),
            max_replicas=2,
            metrics=[{"metric": "queuedRequests", "target": 5}],  # type: ignore[list-item]
        ),
        "server: s is not created for an autoscaler. Each update would reset its replicas. Pass autoscaled=True to it.",
    ),
    "an image of a run that is not known yet": (
        lambda: TrainingJob(
            "t", cluster=theirs(), namespace="llm", accelerator="nvidia-l4", image=pulumi.Output.from_input("i:1")
        ),
        "image: has the output of a resource, and the name of the run ends in a hash of its content.",
    ),
    "a run of more slices than pools": (
        lambda: MultisliceJob(
            "m",
            namespace="llm",
            slices=2,
            pools=[TpuNodePool("p", cluster=standard(), version="v6e", topology="4x4", zones=["us-central1-b"])],
        ),
        "slices",
    ),
    "a cluster queue that nobody has": (
        lambda: WorkloadNamespace(
            "llm",
            kueue=KueueStack("kueue", cluster=theirs(), queues=[ClusterQueue("gpus", pools=[l4(standard())])]),
            queues={"team": "gpu"},
        ),
        "queues.team: kueue has no cluster queue gpu. Kueue would admit nothing here. Did you mean gpus?",
    ),
    "a local queue that its namespace does not have": (
        lambda: TrainingJob(
            "t",
            namespace=WorkloadNamespace("llm", cluster=theirs(), queues={"team": "gpus"}),
            accelerator="nvidia-l4",
            image="i:1",
            queue="tema",
        ),
        "queue: namespace llm has no local queue tema. Kueue would never admit the workload. Did you mean team?",
    ),
    "a bucket that its namespace may not use": (
        lambda: FinetuneJob(
            "t",
            namespace=WorkloadNamespace("llm", cluster=theirs()),
            accelerator="nvidia-l4",
            volume=ModelBucket("models", location="us-central1").volume("/data"),
        ),
        "volume: namespace llm has no role on bucket my-project-models. The pods could not mount it.",
    ),
    "fewer replicas at most than at least": (
        lambda: JetStreamAutoscaling(
            "a",
            cluster=theirs(),
            deployment="maxengine-server",
            min_replicas=3,
            max_replicas=1,
            metrics=[{"metric": "slotsUsed", "target": "0.8"}],  # type: ignore[list-item]
        ),
        "max_replicas",
    ),
    "a variable with a number": (
        lambda: VllmServer("s", cluster=theirs(), namespace="llm", model="m", env={"A_B": 1}),  # type: ignore[dict-item]
        "env.A_B: the value is a number, and must be text.",
    ),
    "a compute class of a machine that nobody has": (
        lambda: ComputeClass("c", cluster=theirs(), priorities=[{"machine_type": "g2-standard-5"}]),  # type: ignore[list-item]
        "priorities[0].machine_type: g2-standard-5 is not a machine type",
    ),
    "a metrics adapter without a cluster's name": (
        lambda: MetricsAdapter(
            "a", adapter="stackdriver", opts=pulumi.ResourceOptions(providers=[k8s.Provider("p", kubeconfig="k")])
        ),
        "cluster: is missing, and metrics are selected by its name.",
    ),
    "parts of pods that are no list": (
        lambda: PodParts(volumes=3, tolerations="x"),  # type: ignore[arg-type]
        "volumes: the value is a number, and must be a list. Pass a list",
    ),
    "parts of pods that are misspelled": (
        lambda: PodParts(secret_envs={}),  # type: ignore[call-arg]
        "Did you mean secret_env?",
    ),
    "a machine that the catalog has with other figures": (
        lambda: MachineShape("g2-standard-24", vcpus=2, memory_gib=4),
        "g2-standard-24: is in the catalog with other figures",
    ),
    "more than a queue ever has": (
        lambda: gemma(
            namespace=team(standard(), {"nvidia.com/gpu": "1", "cpu": "9", "memory": "9Gi"}), gpus=2, queue="team"
        ),
        "gpus: one pod of server gemma requests 2 GPUs, and cluster queue gpus has at most 1 GPU.",
    ),
    "a resource that a queue does not have": (
        lambda: gemma(namespace=team(standard(), {"nvidia.com/gpu": "2"}), queue="team", resources={"cpu": "4"}),
        "queue: cluster queue gpus has no quota for cpu, which server gemma requests. Kueue would never admit it.",
    ),
    "a route over servers of two models": (
        lambda: two_models(theirs()),
        "servers answer to google/gemma-3-4b-it, Qwen/",
    ),
    "a gateway in a cluster without its kinds": (
        lambda: InferenceGateway("g", cluster=standard(), namespace="llm", plain_http=True),
        "cluster: ml has no gateway api. It would not know the gateway's kinds. Pass gateway_api=True",
    ),
    "a token that GKE would not write": (
        lambda: WorkloadNamespace(
            "llm", cluster=standard(), hf_token_from=SecretManager("projects/p/secrets/x", "p", "p.svc.id.goog")
        ),
        "cluster: ml has no secret sync.",
    ),
    "a tenant whose pods may be privileged": (
        lambda: Tenant("rights", namespace=team(standard(network_policy="dataplaneV2"))),
        "namespace: llm has no Pod Security level, so privileged pods could bypass the tenant's rules.",
    ),
    "a tenant without its namespace": (
        lambda: Tenant("vision", cluster=standard(network_policy="dataplaneV2")),
        "namespace: is missing. Only in a namespace with a Pod Security level does a tenant have limits.",
    ),
    "a tenant of another level than its namespace": (
        lambda: Tenant("rights", namespace=team(standard(), pod_security="baseline"), pod_security="restricted"),
        "pod_security: is restricted, and namespace llm has baseline, which counts.",
    ),
    "a tenant whose policies nothing enforces": (
        lambda: Tenant("rights", namespace=team(standard(), pod_security="baseline")),
        "cluster: ml has no network policy. Nothing would enforce the tenant's NetworkPolicies.",
    ),
    "groups that the cluster does not know": (
        lambda: Tenant(
            "rights",
            namespace=team(standard(network_policy="dataplaneV2"), pod_security="baseline"),
            members=["group:ml@example.com"],
        ),
        "cluster: ml has no security group. GKE would know no groups among the members.",
    ),
    "options of a route, which is no resource": (
        lambda: Route(servers={}, opts=pulumi.ResourceOptions()),  # type: ignore[call-arg]
        "opts is not a key of the component",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_program_is_refused_in_its_own_words(wrong: str, run: Run) -> None:
    program, says = WRONG[wrong]
    with pytest.raises(Refused) as refused:
        run(program)
    message = str(refused.value)
    assert says in message
    assert not re.search(r"gke-ai:|mode: existing|\b[a-z]+[A-Z]\w+:", message), "the words of a configuration"


def test_every_mistake_is_reported_at_once(run: Run) -> None:
    with pytest.raises(Refused, match="4 arguments are wrong") as refused:
        run(lambda: GpuNodePool("p", cluster=5, machin_type="x", zones="a"))  # type: ignore[call-arg, arg-type]
    assert {problem.path for problem in refused.value.problems} >= {"cluster", "zones"}


# --- pages ------------------------------------------------------------------------------------------------------------


def test_the_programs_of_the_page_work(run: Run) -> None:
    """Each block goes on where the one before ended."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "package.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}

    def page() -> None:
        for block in blocks:
            exec(block, names)

    found = run(page, **{"gke-ai:hfToken": "hf_canary"})
    assert {item.object_name for item in found.all("Deployment")} == {"gemma", "gemma-small", "elsewhere"}
