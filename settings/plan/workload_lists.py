"""Workloads: lists of servers and runs, their namespaces, Services, token and volume."""

from __future__ import annotations

from settings.model import (
    Autoscaler,
    BucketMount,
    FineTune,
    GpuServer,
    JetStream,
    LocalQueue,
    Multislice,
    Run,
    Server,
    Settings,
    TpuBatch,
    TpuWorkload,
    TrainingRun,
    VllmTpu,
    Workload,
)

# Every cluster has this namespace. The stack creates all others, except those of the system.
DEFAULT_NAMESPACE = "default"


def workloads(settings: Settings) -> list[Workload]:
    """All servers, training runs and batch Jobs, in the order of the configuration."""
    return [*settings.serving, *settings.training, *settings.batch]


def tpu_workloads(settings: Settings) -> list[TpuWorkload]:
    """Workloads that run on TPUs."""
    return [workload for workload in workloads(settings) if isinstance(workload, TpuWorkload)]


def tpu_runs(settings: Settings) -> list[Multislice | TpuBatch]:
    """Runs on TPUs: Multislice runs and batch Jobs."""
    return [run for run in tpu_workloads(settings) if isinstance(run, Multislice | TpuBatch)]


def tpu_servers(settings: Settings) -> list[JetStream | VllmTpu]:
    """Servers on TPUs, in the order of the configuration."""
    return [server for server in settings.serving if isinstance(server, JetStream | VllmTpu)]


def jetstreams(settings: Settings) -> list[JetStream]:
    """JetStream servers, in the order of the configuration."""
    return [server for server in settings.serving if isinstance(server, JetStream)]


def gpu_workloads(settings: Settings) -> list[GpuServer | FineTune | TrainingRun]:
    """Workloads that run on GPUs."""
    return [workload for workload in workloads(settings) if isinstance(workload, GpuServer | FineTune | TrainingRun)]


def token_workloads(settings: Settings) -> list[Workload]:
    """Workloads whose pods, or whose Job that fills a bucket, read the Hugging Face token."""
    return [
        workload
        for workload in workloads(settings)
        if workload.token is not None or (isinstance(workload, Server) and workload.hub_token is not None)
    ]


def fine_tunes(settings: Settings) -> list[FineTune]:
    """Fine-tuning runs, in the order of the configuration."""
    return [run for run in settings.training if isinstance(run, FineTune)]


def training_jobs(settings: Settings) -> list[TrainingRun]:
    """Training runs with an image of their own, in the order of the configuration."""
    return [run for run in settings.training if isinstance(run, TrainingRun)]


def bucket_mounts(settings: Settings) -> list[tuple[Run, BucketMount]]:
    """Runs with each bucket that they mount, in the order of the configuration."""
    return [(run, mount) for run in runs(settings) for mount in run.bucket_mounts]


def multislices(settings: Settings) -> list[Multislice]:
    """Multislice runs, which are JobSets, in the order of the configuration."""
    return [run for run in settings.training if isinstance(run, Multislice)]


def jobsets(settings: Settings) -> list[Run]:
    """Runs that are JobSets, in the order of the configuration."""
    return [run for run in runs(settings) if run.object_kind == "JobSet"]


def namespaces(settings: Settings) -> list[str]:
    """All namespaces of workloads, local queues, tenants and the gateway, in the order of first use."""
    queues = settings.queues.local_queues if settings.queues else []
    used: list[Workload | LocalQueue] = [*workloads(settings), *queues]
    gateway = [settings.gateway.namespace] if settings.gateway and settings.gateway.namespace else []
    tenants = [tenant.name for tenant in settings.tenants]
    return list(dict.fromkeys([*(user.namespace for user in used), *tenants, *gateway]))


def runs(settings: Settings) -> list[Run]:
    """All training runs and batch Jobs, in the order in which they are created."""
    return [*settings.training, *settings.batch]


def autoscaler_of(server: Server, settings: Settings) -> Autoscaler | None:
    """The autoscaler of the server, if it has one."""
    return next((autoscaler for autoscaler in settings.autoscaling if autoscaler.server == server.name), None)
