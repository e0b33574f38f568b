"""Programs that somebody else may write, from the components alone: what they register, and how they are refused."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest

from gke_ai import components as gke
from gke_ai.components.arguments import Refused
from gke_ai.components.serving.server import ModelServer
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
    content: dict[str, Any] = found.one(kind, name).inputs["spec"]["template"]["spec"]
    return content


def amounts(flavor: Mapping[str, Any]) -> dict[str, str]:
    """The quota of a flavor, by resource."""
    return {resource["name"]: resource["nominalQuota"] for resource in flavor["resources"]}


def standard(**more: Any) -> gke.GkeCluster:
    return gke.GkeCluster("ml", **{"location": "us-central1", "mode": "standard", **more})


def l4(cluster: gke.GkeCluster, name: str = "l4", zone: str = "us-central1-a", **more: Any) -> gke.GpuNodePool:
    nodes = {"machine_type": "g2-standard-24", "nodes_per_zone": 2, **more}
    return gke.GpuNodePool(name, cluster=cluster, zones=[zone], **nodes)


def slice_of_v6e(cluster: gke.GkeCluster, name: str = "p") -> gke.TpuNodePool:
    return gke.TpuNodePool(name, cluster=cluster, version="v6e", topology="4x4", zones=["us-central1-b"])


def theirs() -> gke.ClusterConnection:
    return gke.ClusterConnection("theirs", kubeconfig="kubeconfig")


def gemma(name: str = "gemma", **more: Any) -> gke.VllmServer:
    nodes = {} if "pool" in more else {"accelerator": "nvidia-l4"}
    return gke.VllmServer(name, **{"model": "google/gemma-3-4b-it", **nodes, **more})


def team(cluster: gke.GkeCluster, quota: Mapping[str, str] | None = None, **more: Any) -> gke.WorkloadNamespace:
    """A namespace with a queue over two nodes with two GPUs each."""
    stated = [] if quota is None else [FlavorQuota(flavor="l4", quota=dict(quota))]
    queues = [gke.ClusterQueue("gpus", pools=[l4(cluster)], flavors=stated)]
    kueue = gke.KueueStack("kueue", cluster=cluster, queues=queues)
    return gke.WorkloadNamespace("llm", cluster=cluster, kueue=kueue, **{"queues": {"team": "gpus"}, **more})


def serving_and_training(region: str = "us-central1", prefix: str = "") -> None:
    """Serving and training on one pool, under Kueue."""
    cluster = gke.GkeCluster(f"{prefix}ml", location=region, mode="standard")
    pool = l4(cluster, f"{prefix}l4", f"{region}-a")
    models = gke.ModelBucket(f"{prefix}models", location=region)
    queues, priorities = [gke.ClusterQueue("gpus", pools=[pool])], {"training": 20, "serving": 30}
    kueue = gke.KueueStack(f"{prefix}kueue", cluster=cluster, queues=queues, priorities=priorities)
    admission: dict[str, Any] = {"kueue": kueue, "queues": {"team": "gpus"}}
    token = pulumi.Output.secret("hf_canary")
    llm = gke.WorkloadNamespace(f"{prefix}llm", cluster=cluster, hf_token=token, buckets=[models], **admission)
    place: dict[str, Any] = {"namespace": llm, "pool": pool, "queue": "team"}
    gemma = gke.TgiServer(f"{prefix}gemma", gpus=2, model="google/gemma-2-9b-it", priority_class="serving", **place)
    run: dict[str, Any] = {"image": "example.com/train:1", "pods": 2, "gpus_per_pod": 1} | place
    gke.FinetuneJob(f"{prefix}finetune", priority_class="training", volume=models.volume("/data"), **run)
    pulumi.export(f"{prefix}gemma", gemma.url)


@pytest.mark.parametrize("preview", [True, False])
def test_serving_and_training_share_a_pool_of_which_nothing_is_repeated(preview: bool, run: Run) -> None:
    found = run(serving_and_training, preview)
    token = {"name": "hf-secret", "key": "hf_api_token"}
    for kind in ("Deployment", "Job"):
        workload, spec = found.one(kind), pod(found, kind)
        assert {"NodePool l4", "LocalQueue team", "Secret hf-secret"} <= found.waits_for(workload)
        assert workload.inputs["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4", HOSTNAME: "l4"}
        assert any(item.get("valueFrom", {}).get("secretKeyRef") == token for item in spec["containers"][0]["env"])
    (flavor,) = found.one("ClusterQueue").inputs["spec"]["resourceGroups"][0]["flavors"]
    assert (flavor["name"], amounts(flavor)["nvidia.com/gpu"]) == ("l4", "4")
    assert len(found.all("BucketIAMMember")) == 1
    assert found.one("Bucket").inputs["name"] == f"{PROJECT}-models"
    assert pod(found, "Job")["containers"][0]["image"] == "example.com/train:1"


def test_a_program_has_all_of_it_twice_without_an_edge_between_the_two(run: Run) -> None:
    def both() -> None:
        serving_and_training("us-central1", "us-")
        serving_and_training("europe-west4", "eu-")

    found = run(both)
    assert {resource.name[:3] for resource in found.resources.values()} == {"us-", "eu-"}
    for resource in found.resources.values():
        assert {urn.rpartition("::")[2][:3] for urn in resource.dependencies} <= {resource.name[:3]}, resource.name
    assert {pool.inputs["location"] for pool in found.all("NodePool")} == {"us-central1", "europe-west4"}


def test_a_job_gets_all_of_its_slice_from_the_pool(run: Run) -> None:
    def program() -> None:
        cluster = gke.GkeCluster("ml", location="us-east5", mode="standard")
        pool = gke.FlexStartTpuPool("slice", cluster=cluster, version="v6e", topology="4x4", zones=["us-east5-b"])
        research = gke.WorkloadNamespace("research", cluster=cluster)
        gke.TpuBatchJob("bench", namespace=research, pool=pool, command=["true"])

    found = run(program)
    job = found.one("Job").inputs["spec"]
    assert (job["completions"], job["completionMode"]) == (4, "Indexed")
    assert pod(found, "Job")["nodeSelector"][HOSTNAME] == "slice"
    assert pod(found, "Job")["containers"][0]["resources"]["limits"]["google.com/tpu"] == "4"


def test_components_are_put_into_clusters_that_something_else_made(run: Run) -> None:
    def program() -> None:
        theirs = gke.GkeCluster.existing("theirs", location="us-central1")
        gke.KueueStack.existing("kueue", cluster=theirs, priorities={"high": 1})
        other = gke.ClusterConnection("other", kubeconfig=pulumi.Output.secret("{}"), identifier="2026")
        gemma(cluster=other, namespace="llm")

    found = run(program)
    assert found.all("Cluster") == found.all("Release") == []
    assert found.one("PriorityClass").inputs["value"] == 1
    assert {"kubernetes other"} <= {name.rpartition(":")[2] for name in found.waits_for(found.one("Deployment"))}


def test_an_autoscaler_brings_its_adapter_once_for_the_whole_cluster(run: Run) -> None:
    def program() -> None:
        cluster = standard(location="us-west4")
        pool = gke.TpuNodePool("v5e", cluster=cluster, version="v5e", topology="2x4", nodes_per_zone=2)
        place: dict[str, Any] = {"namespace": gke.WorkloadNamespace("jetstream", cluster=cluster), "pool": pool}
        model: dict[str, Any] = {"model": "gemma-7b", "checkpoint": "gs://models/gemma"}
        server = gke.JetStreamServer("maxengine", autoscaled=True, **model, **place)
        bounds: dict[str, Any] = {"max_replicas": 2, "metrics": [{"metric": "prefillBacklog", "target": 10}]}
        gke.JetStreamAutoscaling("ours", server=server, **bounds)
        gke.JetStreamAutoscaling("theirs", cluster=cluster, deployment="maxengine-server", **bounds)

    found = run(program)
    assert len(found.all("MetricsAdapter")) == 1
    scalers = found.all("HorizontalPodAutoscaler")
    targets = {item.inputs["spec"]["scaleTargetRef"]["name"] for item in scalers}
    assert targets == {"maxengine", "maxengine-server"}
    assert all("APIService v1beta1.external.metrics.k8s.io" in found.waits_for(scaler) for scaler in scalers)
    assert found.one("Deployment", "maxengine").ignored == ("spec.replicas",)


def test_a_gateway_divides_requests_among_servers(run: Run) -> None:
    def program() -> None:
        llm = gke.WorkloadNamespace("llm", cluster=gke.GkeCluster("ml", location="us-central1", gateway_api=True))
        servers: dict[ModelServer[Any], int] = {gemma(namespace=llm): 90, gemma("gemma-next", namespace=llm): 10}
        gke.InferenceGateway("models", plain_http=True, routes=[gke.Route(servers=servers)])

    found = run(program)
    (rule,) = found.one("HTTPRoute").inputs["spec"]["rules"]
    assert {item["name"]: item["weight"] for item in rule["backendRefs"]} == {"gemma": 90, "gemma-next": 10}
    assert "Deployment gemma" not in found.waits_for(found.one("Gateway"))
    assert {"Gateway models", "Deployment gemma", "Deployment gemma-epp"} <= found.waits_for(found.one("HTTPRoute"))


def test_outputs_are_arguments_where_they_decide_no_shape(run: Run) -> None:
    def program() -> None:
        project = gcp.organizations.Project("mine", project_id="made-here", name="mine")
        network = gcp.compute.Network("net", project=project.project_id)
        cluster = gke.GkeCluster("ml", project=project.project_id, location="us-central1", network=network.id)
        llm = gke.WorkloadNamespace("llm", cluster=cluster, hf_token=project.number)
        digest = network.self_link.apply(lambda _: "example.com/vllm@sha256:0")
        gemma(namespace=llm, image=digest, env={"BUCKET": project.name})

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
        slices = [slice_of_v6e(cluster, f"slice-{number}") for number in range(3)]
        queues = [gke.ClusterQueue("tpus", pools=slices), gke.ClusterQueue("gpus", pools=[l4(cluster)])]
        kueue = gke.KueueStack("kueue", cluster=cluster, jobset=True, queues=queues)
        research = gke.WorkloadNamespace("research", cluster=cluster, kueue=kueue, queues={"team": "tpus"})
        gke.MultisliceJob("train", namespace=research, slices=3, pools=slices, queue="team", command=["python", "t.py"])

    found = run(program)
    assert {item.object_name for item in found.all("ResourceFlavor")} == {"slice-0", "l4"}
    (group,) = found.one("ClusterQueue", "tpus").inputs["spec"]["resourceGroups"]
    assert [amounts(flavor)["google.com/tpu"] for flavor in group["flavors"]] == ["48"]


def test_a_tenant_takes_name_queues_buckets_and_level_from_its_namespace(run: Run) -> None:
    def program() -> None:
        models = gke.ModelBucket("models", location="us-central1")
        gke.Tenant("rights", namespace=guarded(buckets=[models], pod_security="restricted"))

    found = run(program)
    assert found.one("Namespace", "llm").inputs["metadata"]["labels"] == {
        f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
    }
    policy = found.one("ValidatingAdmissionPolicy")
    assert policy.inputs["metadata"]["name"] == "tenant-llm"
    assert all(name in str(policy.inputs["spec"]) for name in ("team", "models"))
    assert "Namespace llm" in found.waits_for(policy)


def test_a_pool_beside_the_name_of_a_cluster_leaves_private_nodes_to_it(run: Run) -> None:
    place: dict[str, Any] = {"cluster": "theirs", "location": "us-central1"}
    assert "networkConfig" not in run(lambda: l4(**place)).one("NodePool").inputs


def test_a_secret_of_the_same_program_provides_the_token(run: Run) -> None:
    def program() -> None:
        cluster = standard(secret_sync=True)
        made = gcp.secretmanager.Secret("hf", secret_id="hf", replication={"auto": {}})
        source = gke.SecretManager(made.name.apply(lambda _: "projects/7/secrets/hf"), "p", cluster.workload_pool)
        gke.WorkloadNamespace("llm", cluster=cluster, hf_token_from=source)

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
        place = gke.Region("us-newplace1", zones=["us-newplace1-a", "us-newplace1-d"])
        shape = gke.MachineShape("a9-highgpu-8g", vcpus=224, memory_gib=3968, gpu="nvidia-x9", gpus=8)
        cluster = gke.GkeCluster("ml", location=place, mode="standard", project="p")
        pool = gke.GpuNodePool("x9", cluster=cluster, machine_type=shape, nodes_per_zone=1)
        models = gke.ModelBucket("models", location=place, project="p")
        kueue = gke.KueueStack("kueue", cluster=cluster, queues=[gke.ClusterQueue("gpus", pools=[pool])])
        llm = gke.WorkloadNamespace("llm", cluster=cluster, kueue=kueue, queues={"team": "gpus"}, buckets=[models])
        gemma(namespace=llm, pool=pool, gpus=8, queue="team")

    found = run(program)
    nodes = found.one("NodePool", "x9").inputs
    assert nodes["nodeLocations"] == ["us-newplace1-a", "us-newplace1-d"]
    gpus = nodes["nodeConfig"]["guestAccelerators"][0]
    assert (gpus["type"], gpus["count"]) == ("nvidia-x9", 8)
    (group,) = found.one("ClusterQueue").inputs["spec"]["resourceGroups"]
    assert amounts(group["flavors"][0])["nvidia.com/gpu"] == "16"
    assert pod(found, "Deployment")["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_pods_have_what_the_program_adds(run: Run) -> None:
    toleration, volume = {"key": "team", "operator": "Exists"}, {"name": "cache", "emptyDir": {}}
    mount, token = {"name": "cache", "mountPath": "/cache"}, {"KEY": gke.SecretKey("wandb", "token")}
    log, proxy = {"name": "log", "image": "log:1"}, {"name": "proxy", "image": "p:1", "restartPolicy": "Always"}
    mounted: dict[str, Any] = {"volumes": [volume], "volume_mounts": [mount]}
    parts = gke.PodParts(tolerations=[toleration], secret_env=token, sidecars=[log, proxy], **mounted)

    def program() -> None:
        common: dict[str, Any] = {"cluster": theirs(), "namespace": "llm", "accelerator": "nvidia-l4", "pod": parts}
        gke.VllmServer("s", model="google/gemma-3-4b-it", **common)
        gke.TrainingJob("t", image="i:1", **common)
        gke.TrainingJob("u", image="i:1", **{**common, "pod": gke.PodParts()})

    found = run(program)
    runs = {item.object_name.partition("-")[0]: item for item in found.all("JobSet")}
    template = runs["t"].inputs["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for spec in (pod(found, "Deployment"), template):
        container, *others = spec["containers"]
        assert toleration in spec["tolerations"]
        assert mount in container["volumeMounts"]
        assert volume in spec["volumes"]
        assert {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}} in container["env"]
        assert [item["name"] for item in others] == ["log"]
        assert "proxy" in [item["name"] for item in spec["initContainers"]]
    names = {name: item.object_name.partition("-")[2] for name, item in runs.items()}
    assert names["t"] != names["u"], "they are part of what a run is"


def test_kueue_queues_further_kinds_with_further_values(run: Run) -> None:
    def program() -> None:
        kinds, fair = ["kubeflow.org/mpijob"], {"fairSharing": {"enable": True}}
        further = {"controllerManager": {"manager": {"podAnnotations": {"a": "b"}}}}
        gke.KueueStack("kueue", cluster=theirs(), frameworks=kinds, configuration=fair, values=further)

    values = run(program).one("Release").inputs["values"]
    manager = values["managerConfig"]["controllerManagerConfigYaml"]
    assert "kubeflow.org/mpijob" in manager
    assert "fairSharing" in manager
    assert values["controllerManager"]["manager"]["podAnnotations"] == {"a": "b"}
    assert values["controllerManager"]["manager"]["image"]["repository"], "the component's own stay"


def two_models(cluster: gke.ClusterConnection) -> gke.InferenceGateway:
    place: dict[str, Any] = {"cluster": cluster, "namespace": "llm", "max_model_len": 8192}
    shares: dict[ModelServer[Any], int] = {gemma(**place): 1, gemma("qwen", model="Qwen/Qwen3-8B", **place): 1}
    return gke.InferenceGateway("g", plain_http=True, routes=[gke.Route(servers=shares)])


def scaled(max_replicas: int = 2, **target: Any) -> gke.JetStreamAutoscaling:
    metrics: Any = [{"metric": "slotsUsed", "target": "0.8"}]
    return gke.JetStreamAutoscaling("a", max_replicas=max_replicas, metrics=metrics, **target)


def trained(image: Any = "i:1", **more: Any) -> gke.TrainingJob:
    return gke.TrainingJob("t", image=image, accelerator="nvidia-l4", **more)


def guarded(**more: Any) -> gke.WorkloadNamespace:
    """A namespace in a cluster that enforces network policies."""
    return team(standard(network_policy="dataplaneV2"), **more)


def llm_of_theirs(**more: Any) -> gke.WorkloadNamespace:
    return gke.WorkloadNamespace("llm", cluster=theirs(), **more)


def data_of_models() -> Any:
    return gke.ModelBucket("models", location="us-central1").volume("/data")


def with_provider() -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(providers=[k8s.Provider("p", kubeconfig="k")])


ONE_GPU = {"nvidia.com/gpu": "1"}
TOKEN_OF_P = gke.SecretManager("projects/p/secrets/x", "p", "p.svc.id.goog")


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a misspelled argument": (
        lambda: l4(standard(), capactiy=Spot(mode="spot")),
        "capactiy: capactiy is not a key of the component. It would have no effect. Did you mean capacity?",
    ),
    "a region that does not exist": (
        lambda: gke.GkeCluster("ml", location="us-centrl1"),
        "location: us-centrl1 is not a region of Google Cloud. GKE would refuse the cluster. Did you mean us-central1?",
    ),
    "a zone of another region": (
        lambda: l4(standard(), zone="europe-west4-a"),
        "zones[0]: europe-west4-a is not in us-central1, the cluster's region.",
    ),
    "an output that decides what is created": (
        lambda: l4(standard(), machine_type=theirs().cluster_name),
        "machine_type: is the output of a resource, which is known only during an update.",
    ),
    "a slice that GKE does not have": (
        lambda: gke.TpuNodePool("p", cluster=standard(), version="v6e", topology="3x3"),
        "topology: 3x3 is not a topology of TPU v6e.",
    ),
    "a pool of Autopilot": (
        lambda: l4(gke.GkeCluster("auto", location="us-central1"), autoscaling=Autoscaling(max_nodes=2)),
        "cluster: auto is an Autopilot cluster, in which Google creates the nodes. GKE would refuse the pool.",
    ),
    "more GPUs than a node has": (
        lambda: gemma(namespace="llm", pool=l4(standard()), gpus=4),
        "gpus: a replica of the server requests 4 GPUs, and a node of pool l4 (g2-standard-24) has 2 GPUs for pods.",
    ),
    "a model that does not fit": (
        lambda: gemma(cluster=theirs(), namespace="llm", model="google/gemma-2-27b-it"),
        "google/gemma-2-27b-it needs at least",
    ),
    "no cluster": (
        lambda: gke.KueueStack("kueue"),
        "cluster: no cluster is given. Kubernetes objects would go to whatever cluster a kubeconfig of this machine "
        "names. Pass cluster=…, or opts with a Kubernetes provider.",
    ),
    "a name where a component is needed": (
        lambda: gke.InferenceGateway("g", cluster=theirs(), plain_http=True, routes=["gemma"]),  # type: ignore[list-item]
        "routes[0]: the value is text, and must be a mapping",
    ),
    "an autoscaler for a server with fixed replicas": (
        lambda: scaled(server=gemma("s", cluster=theirs(), namespace="llm")),
        "server: s is not created for an autoscaler. Each update would reset its replicas. Pass autoscaled=True to it.",
    ),
    "an image of a run that is not known yet": (
        lambda: trained(pulumi.Output.from_input("i:1"), cluster=theirs(), namespace="llm"),
        "image: has the output of a resource, and the name of the run ends in a hash of its content.",
    ),
    "a run of more slices than pools": (
        lambda: gke.MultisliceJob("m", namespace="llm", slices=2, pools=[slice_of_v6e(standard())]),
        "slices",
    ),
    "a cluster queue that nobody has": (
        lambda: team(standard(), queues={"team": "gpu"}),
        "queues.team: kueue has no cluster queue gpu. Kueue would admit nothing here. Did you mean gpus?",
    ),
    "a local queue that its namespace does not have": (
        lambda: trained(namespace=llm_of_theirs(queues={"team": "gpus"}), queue="tema"),
        "queue: namespace llm has no local queue tema. Kueue would never admit the workload. Did you mean team?",
    ),
    "a bucket that its namespace may not use": (
        lambda: gke.FinetuneJob("t", namespace=llm_of_theirs(), accelerator="nvidia-l4", volume=data_of_models()),
        "volume: namespace llm has no role on bucket my-project-models. The pods could not mount it.",
    ),
    "fewer replicas at most than at least": (
        lambda: scaled(1, min_replicas=3, cluster=theirs(), deployment="maxengine-server"),
        "max_replicas",
    ),
    "a variable with a number": (
        lambda: gemma(cluster=theirs(), namespace="llm", env={"A_B": 1}),
        "env.A_B: the value is a number, and must be text.",
    ),
    "a compute class of a machine that nobody has": (
        lambda: gke.ComputeClass("c", cluster=theirs(), priorities=[{"machine_type": "g2-standard-5"}]),  # type: ignore[list-item]
        "priorities[0].machine_type: g2-standard-5 is not a machine type",
    ),
    "a metrics adapter without a cluster's name": (
        lambda: gke.MetricsAdapter("a", adapter="stackdriver", opts=with_provider()),
        "cluster: is missing, and metrics are selected by its name.",
    ),
    "parts of pods that are no list": (
        lambda: gke.PodParts(volumes=3, tolerations="x"),  # type: ignore[arg-type]
        "volumes: the value is a number, and must be a list. Pass a list",
    ),
    "parts of pods that are misspelled": (lambda: gke.PodParts(secret_envs={}), "Did you mean secret_env?"),  # type: ignore[call-arg]
    "a machine that the catalog has with other figures": (
        lambda: gke.MachineShape("g2-standard-24", vcpus=2, memory_gib=4),
        "g2-standard-24: is in the catalog with other figures",
    ),
    "more than a queue ever has": (
        lambda: gemma(namespace=team(standard(), {**ONE_GPU, "cpu": "9", "memory": "9Gi"}), gpus=2, queue="team"),
        "gpus: one pod of server gemma requests 2 GPUs, and cluster queue gpus has at most 1 GPU.",
    ),
    "a resource that a queue does not have": (
        lambda: gemma(namespace=team(standard(), ONE_GPU), queue="team", resources={"cpu": "4"}),
        "queue: cluster queue gpus has no quota for cpu, which server gemma requests. Kueue would never admit it.",
    ),
    "servers of two models": (lambda: two_models(theirs()), "servers answer to google/gemma-3-4b-it, Qwen/"),
    "a gateway in a cluster without its kinds": (
        lambda: gke.InferenceGateway("g", cluster=standard(), namespace="llm", plain_http=True),
        "cluster: ml has no gateway api. It would not know the gateway's kinds. Pass gateway_api=True",
    ),
    "a token that GKE would not write": (
        lambda: gke.WorkloadNamespace("llm", cluster=standard(), hf_token_from=TOKEN_OF_P),
        "cluster: ml has no secret sync.",
    ),
    "a tenant whose pods may be privileged": (
        lambda: gke.Tenant("rights", namespace=guarded()),
        "namespace: llm has no Pod Security level, so privileged pods could bypass the tenant's rules.",
    ),
    "a tenant without its namespace": (
        lambda: gke.Tenant("vision", cluster=standard(network_policy="dataplaneV2")),
        "namespace: is missing. Only in a namespace with a Pod Security level does a tenant have limits.",
    ),
    "a tenant of another level than its namespace": (
        lambda: gke.Tenant("rights", namespace=team(standard(), pod_security="baseline"), pod_security="restricted"),
        "pod_security: is restricted, and namespace llm has baseline, which counts.",
    ),
    "a tenant whose policies nothing enforces": (
        lambda: gke.Tenant("rights", namespace=team(standard(), pod_security="baseline")),
        "cluster: ml has no network policy. Nothing would enforce the tenant's NetworkPolicies.",
    ),
    "groups that the cluster does not know": (
        lambda: gke.Tenant("rights", namespace=guarded(pod_security="baseline"), members=["group:ml@example.com"]),
        "cluster: ml has no security group. GKE would know no groups among the members.",
    ),
    "options of a route, which is no resource": (
        lambda: gke.Route(servers={}, opts=pulumi.ResourceOptions()),  # type: ignore[call-arg]
        "opts is not a key of the component",
    ),
}


@pytest.mark.parametrize(("program", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_program_is_refused_in_its_own_words(program: Callable[[], object], says: str, run: Run) -> None:
    with pytest.raises(Refused) as refused:
        run(program)
    assert says in str(refused.value)
    words_of_a_configuration = r"gke-ai:|mode: existing|\b[a-z]+[A-Z]\w+:"
    assert not re.search(words_of_a_configuration, str(refused.value))


def test_every_mistake_is_reported_at_once(run: Run) -> None:
    with pytest.raises(Refused, match="4 arguments are wrong") as refused:
        run(lambda: gke.GpuNodePool("p", cluster=5, machin_type="x", zones="a"))  # type: ignore[call-arg, arg-type]
    assert {problem.path for problem in refused.value.problems} >= {"cluster", "zones"}


def test_the_programs_of_the_page_work(run: Run) -> None:
    """Each block goes on where the one before ended."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "package.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}

    def page() -> None:
        for block in blocks:
            exec(block, names)

    found = run(page, **{"gke-ai:hfToken": "hf_canary"})
    assert {item.object_name for item in found.all("Deployment")} == {"gemma", "gemma-small", "elsewhere"}
