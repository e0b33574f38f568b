"""The objects that each module of Cluster Toolkit makes, read from its main.tf and from the Terraform modules it calls.

External modules, by their sources: https://github.com/terraform-google-modules/terraform-google-network (network,
subnetworks, firewall rules), …-address, …-cloud-router (router, NAT), …-service-accounts (account, role of a project),
…-kubernetes-engine/modules/workload-identity (Kubernetes service account, its binding).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maintain.blueprints.checkout import UNKNOWN, Item, Module, manifests

# What says what a Kubernetes object is for. Other kinds have only a name in the facts.
ESSENTIAL: Mapping[str, tuple[str, ...]] = {
    "Topology": ("spec.levels",),
    "ResourceFlavor": ("spec.nodeLabels", "spec.topologyName", "spec.tolerations"),
    "ClusterQueue": ("spec.namespaceSelector", "spec.resourceGroups"),
    "LocalQueue": ("metadata.namespace", "spec.clusterQueue"),
    "PriorityClass": ("value",),
    "ResourceClaimTemplate": ("spec.spec.devices.requests",),
    "GKENetworkParamSet": ("spec.deviceMode",),
    "ResourceQuota": ("metadata.namespace",),
}
# A bare accelerator machine: its taint, as the modules gpu-definition and tpu-definition know it.
GPU_MACHINE, TPU_MACHINE = re.compile(r"a[234]"), re.compile(r"ct\d|tpu")


def at(value: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def item(document: Mapping[str, Any]) -> Item:
    """A Kubernetes object."""
    kind = document["kind"]
    found = {path: at(document, path) for path in ESSENTIAL.get(kind, ())}
    return Item(kind, document["metadata"]["name"], {path: value for path, value in found.items() if value is not None})


def vpc(module: Module) -> Iterator[Item]:
    name = module["network_name"] or module.id
    module.skip("nic_type")
    yield from network(module, name, module["firewall_rules"], module["network_profile"])
    for subnetwork in module["subnetworks"] or [{"subnet_name": module["subnetwork_name"] or f"{name}-primary-subnet"}]:
        ranges = [each["ranges"] for each in module["secondary_ranges_list"]]
        yield subnetwork_of(subnetwork["subnet_name"], subnetwork, ranges, module["subnetwork_private_access"])


def subnetwork_of(name: str, stated: Mapping[str, Any], ranges: list[Any], private: bool) -> Item:
    names = [each["range_name"] for each in ranges[0]] if ranges and "purpose" not in stated else []
    return Item(
        "google_compute_subnetwork",
        name,
        {
            "ip_cidr_range": stated.get("subnet_ip", UNKNOWN),
            "purpose": stated.get("purpose"),
            "role": stated.get("role"),
            "private_ip_google_access": private and "purpose" not in stated,
            "secondary_ip_ranges": names,
        },
    )


def network(module: Module, name: str, rules: list[Any], profile: str | None) -> Iterator[Item]:
    yield Item("google_compute_network", name, {"mtu": module["mtu"], "network_profile": profile})
    yield Item("google_compute_router", f"{name}-router")
    yield Item("google_compute_router_nat", f"cloud-nat of {name}", {"nat_ips": module["ips_per_nat"]})
    yield Item("google_compute_address", f"{name}-nat-ips, {module['ips_per_nat']} of them")
    for rule in rules:
        yield Item("google_compute_firewall", rule["name"])
    if module["enable_internal_traffic"]:
        yield Item("google_compute_firewall", f"{name}-fw-allow-internal-traffic")
    if module["enable_iap_ssh_ingress"]:
        yield Item("google_compute_firewall", f"{name}-fw-allow-iap-ingress")


def multivpc(module: Module) -> Iterator[Item]:
    module.skip("global_ip_address_range", "subnetwork_cidr_suffix")
    for number in range(module["network_count"]):
        name = f"{module['network_name_prefix']}-{number}"
        yield from network(module, name, module["firewall_rules"], module["network_profile"])
        yield subnetwork_of(f"{name}-subnet", {}, [], module["subnetwork_private_access"])


def rdma_vpc(module: Module) -> Iterator[Item]:
    name, template = module["network_name"], module["subnetworks_template"]
    module.skip("network_routing_mode")
    profile = module["network_profile"].rpartition("/")[2]
    yield Item("google_compute_network", name, {"mtu": module["mtu"], "network_profile": profile})
    if template:
        yield Item("google_compute_subnetwork", f"{template['name_prefix']}, {template['count']} of them")


def service_account(module: Module) -> Iterator[Item]:
    yield Item("google_service_account", module["name"])
    for role in module["project_roles"]:
        yield Item("google_project_iam_member", f"{module['name']}: roles/{role}", {"role": f"roles/{role}"})


def bucket(module: Module) -> Iterator[Item]:
    module.skip("local_mount", "random_suffix")
    settings = {
        "uniform_bucket_level_access": module["uniform_bucket_level_access"],
        "hierarchical_namespace.enabled": module["enable_hierarchical_namespace"],
        "force_destroy": module["force_destroy"],
    }
    yield Item("google_storage_bucket", module["name_prefix"], settings)


def volume(module: Module) -> Iterator[Item]:
    storage = module["gcsfuse_storage_class_name"]
    module.skip("capacity_gib")
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        yield Item(kind, module.id, {"spec.storageClassName": storage})


def policy(module: Module) -> Iterator[Item]:
    module.skip("project_id", "region")
    stated = {f"workload_policy.{key}": value for key, value in module["workload_policy"].items()}
    yield Item("google_compute_resource_policy", module["name"], stated)


def job(module: Module) -> Iterator[Item]:
    """A file with a Job, which the reader applies by hand."""
    module.skip(*module.unread)
    yield Item("local_file", f"Job {module['name']}", {})


def cluster(module: Module) -> Iterator[Item]:
    networks = module.networks()
    multi = bool(networks)
    endings = module["maintenance_exclusions"]
    settings = {
        "datapath_provider": "ADVANCED_DATAPATH" if module["enable_dataplane_v2"] or multi else None,
        "enable_multi_networking": multi,
        "enable_shielded_nodes": module["enable_shielded_nodes"],
        "deletion_protection": module["deletion_protection"],
        "private_cluster_config.enable_private_nodes": module["enable_private_nodes"],
        "private_cluster_config.enable_private_endpoint": module["enable_private_endpoint"],
        "private_cluster_config.master_ipv4_cidr_block": module["master_ipv4_cidr_block"],
        "master_authorized_networks_config.cidr_blocks": UNKNOWN if module["master_authorized_networks"] else None,
        "master_authorized_networks_config.gcp_public_cidrs_access_enabled": module["gcp_public_cidrs_access_enabled"],
        "private_ipv6_google_access": module["enable_private_ipv6_google_access"],
        "ip_allocation_policy.cluster_secondary_range_name": module["pods_ip_range_name"],
        "ip_allocation_policy.services_secondary_range_name": module["services_ip_range_name"],
        "workload_identity_config.workload_pool": UNKNOWN,
        "vertical_pod_autoscaling.enabled": module["enable_vertical_pod_autoscaling"],
        "release_channel.channel": module["release_channel"],
        "min_master_version": module["version_prefix"],
        "maintenance_policy.daily_maintenance_window.start_time": module["maintenance_start_time"],
        "maintenance_policy.maintenance_exclusions": [each["exclusion_scope"] for each in endings],
        "addons_config.gcp_filestore_csi_driver_config.enabled": module["enable_filestore_csi"],
        "addons_config.gcs_fuse_csi_driver_config.enabled": module["enable_gcsfuse_csi"],
        "addons_config.gce_persistent_disk_csi_driver_config.enabled": module["enable_persistent_disk_csi"],
        "addons_config.parallelstore_csi_driver_config.enabled": module["enable_parallelstore_csi"],
        "addons_config.lustre_csi_driver_config.enabled": module["enable_managed_lustre_csi"],
        "addons_config.slice_controller_config.enabled": module["enable_slice_controller"],
        "gateway_api_config.channel": "CHANNEL_STANDARD" if module["enable_inference_gateway"] else None,
        "enable_k8s_beta_apis.enabled_apis": module["enable_k8s_beta_apis"],
        "monitoring_config.enable_components": [*module["monitoring_components"]]
        + (["DCGM"] if module["enable_dcgm_monitoring"] else []),
        "monitoring_config.managed_prometheus.enabled": True,
        "monitoring_config.auto_monitoring_config.scope": None if module["auto_monitoring_scope"] == "NONE" else "ALL",
        "logging_config.enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS"],
        "managed_machine_learning_diagnostics_config.enabled": module["enable_ml_diagnostics"],
        "dns_config.cluster_dns": module["cloud_dns_config"]["cluster_dns"],
    }
    yield Item("google_container_cluster", module.id, settings)
    sizes = module["system_node_pool_node_count"]
    common = {
        "management.auto_repair": True,
        "management.auto_upgrade": True,
        "node_config.service_account": UNKNOWN,
        "node_config.shielded_instance_config.enable_secure_boot": module["system_node_pool_enable_secure_boot"],
        "node_config.shielded_instance_config.enable_integrity_monitoring": True,
        "node_config.gvnic.enabled": True,
        "node_config.workload_metadata_config.mode": "GKE_METADATA",
    }
    stated = {
        **common,
        "autoscaling.total_min_node_count": sizes["total_min_nodes"],
        "autoscaling.total_max_node_count": sizes["total_max_nodes"],
        "node_config.machine_type": module["system_node_pool_machine_type"],
        "node_config.disk_size_gb": module["system_node_pool_disk_size_gb"],
        "node_config.taints": module["system_node_pool_taints"],
        "upgrade_settings.max_unavailable": module["upgrade_settings"]["max_unavailable"],
    }
    yield Item("google_container_node_pool", "system", stated)
    if module["enable_pathways_for_tpus"]:
        pathways = {**common, "node_config.machine_type": "n4-standard-64", "autoscaling.total_max_node_count": 100}
        yield Item("google_container_node_pool", "cpu-np", pathways)
    if module["enable_ml_diagnostics"]:
        yield Item("Namespace", module["namespace"], {"metadata.labels": {"managed-mldiagnostics-gke": "true"}})
    if module["configure_workload_identity_sa"]:
        yield Item("ServiceAccount", module["k8s_service_account_name"])
        yield Item("google_service_account_iam_member", "roles/iam.workloadIdentityUser")
    names = module["k8s_network_names"]
    for rdma in (False, True):
        if count := sum(("RDMA" in kind) == rdma for kind in networks):
            name = f"{names.get('rdma_prefix' if rdma else 'gvnic_prefix', '')}, {count} of them"
            yield Item("GKENetworkParamSet", name, {"spec.deviceMode": "RDMA" if rdma else "NetDevice"})
            yield Item("Network", name)
    if module["enable_inference_gateway"]:
        yield Item("CustomResourceDefinition", "of the Gateway API Inference Extension v1.0.0")


def pool(module: Module) -> Iterator[Item]:
    machine, networks, reserved = module["machine_type"], module.networks(), module["reservation_affinity"]
    policies, placement = module.used("modules/compute/resource-policy"), module["placement_policy"]
    is_tpu, is_gpu = bool(TPU_MACHINE.match(machine)), bool(GPU_MACHINE.match(machine))
    taint = [f"{'google.com/tpu' if is_tpu else 'nvidia.com/gpu'}=present"] if is_tpu or is_gpu else []
    text = (module.folder / "disk_definitions.tf").read_text()
    disks = re.search(rf'"{machine}"\s*= {{ local_ssd_count_ephemeral_storage = (\d+)', text)
    labels = {**(module["kubernetes_labels"] or {})}
    if module["enable_dranet"]:
        labels["cloud.google.com/gke-networking-dra-driver"] = "true"
    pages = at(module["linux_node_config"], "hugepages_config.hugepage_size_2m")
    settings = {
        "node_count": UNKNOWN if module["static_node_count"] else None,
        "autoscaling.total_max_node_count": None
        if module["static_node_count"]
        else module["autoscaling_total_max_nodes"],
        "management.auto_repair": module["auto_repair"],
        "management.auto_upgrade": module["auto_upgrade"],
        "upgrade_settings.max_unavailable": 1,
        "placement_policy.policy_name": policies[0]["name"] if policies else placement.get("name"),
        "placement_policy.type": "COMPACT" if policies else placement.get("type"),
        "placement_policy.tpu_topology": placement.get("tpu_topology") if is_tpu else None,
        "network_config.accelerator_network_profile": "auto" if module["enable_dranet"] else None,
        "network_config.additional_node_network_configs": len(networks),
        "network_config.enable_private_nodes": module["enable_private_nodes"],
        "node_config.machine_type": machine,
        "node_config.disk_size_gb": module["disk_size_gb"],
        "node_config.disk_type": module["disk_type"],
        "node_config.labels": labels,
        "node_config.service_account": UNKNOWN,
        "node_config.guest_accelerators": [each["type"] for each in module["guest_accelerator"]]
        or (UNKNOWN if is_gpu else None),
        "node_config.taints": taint + module["taints"],
        "node_config.ephemeral_storage_local_ssd_config.local_ssd_count": int(disks[1]) if disks else None,
        "node_config.shielded_instance_config.enable_secure_boot": module["enable_secure_boot"],
        "node_config.shielded_instance_config.enable_integrity_monitoring": True,
        "node_config.gvnic.enabled": True,
        "node_config.linux_node_config.hugepages_config.hugepage_size_2m": pages,
        "node_config.workload_metadata_config.mode": "GKE_METADATA",
        "node_config.reservation_affinity.consume_reservation_type": reserved["consume_reservation_type"],
        "node_config.host_maintenance_policy.maintenance_interval": module["host_maintenance_interval"],
    }
    module.skip("run_workload_script", "zones", "num_slices", "num_node_pools", "autoscaling_total_min_nodes")
    yield Item("google_container_node_pool", module["name"] or module.id, settings)
    if module["enable_dranet"]:
        mode = {
            "deviceClassName": module["dranet_device_class_name"],
            "allocationMode": module["dranet_allocation_mode"],
        }
        yield Item("ResourceClaimTemplate", "default-rdma", {"spec.spec.devices.requests": [{"exactly": mode}]})
    if module["install_gpu_direct_manifests"] and machine.startswith(("a3-highgpu", "a3-megagpu")):
        for url in re.findall(
            rf'"{machine}" = {{\n.*?gpu_direct_manifests = \[(.*?)\]',
            (module.folder / "gpu_direct.tf").read_text(),
            re.S,
        )[:1]:
            for manifest in re.findall(r"([\w-]+)\.yaml", url):
                yield Item("ConfigMap" if manifest == "nccl-config" else "DaemonSet", manifest)


def kubectl(module: Module) -> Iterator[Item]:
    module.skip("target_architecture")
    for entry in module["apply_manifests"]:
        yield from map(item, manifests(entry["source"], entry.get("template_vars", {})))
    for chart, name in (
        ("kueue", "kueue"),
        ("jobset", "jobset"),
        ("cert_manager", "cert-manager"),
        ("nvidia_dra_driver", "nvidia-dra-driver-gpu"),
    ):
        stated = module[chart]
        if stated.get("install"):
            yield Item(
                "helm_release", name, {"version": stated.get("version", module.nested_default(chart, "version"))}
            )
    if path := module["kueue"].get("config_path"):
        yield from map(item, manifests(path, module["kueue"]["config_template_vars"]))
    for chart, key, values in (("gib", "path", "template_vars"), ("asapd_lite", "config_path", "config_template_vars")):
        stated = module[chart]
        if stated.get("install"):
            yield from map(item, manifests(stated[key], stated.get(values, {})))


# Each module: what it makes, and the blocks of its Terraform that this covers.
MODULES: Mapping[str, tuple[Callable[[Module], Iterator[Item]], set[str]]] = {
    "modules/network/vpc": (vpc, {"module.vpc", "module.nat_ip_addresses", "module.cloud_router"}),
    "modules/network/multivpc": (multivpc, {"module.vpcs"}),
    "modules/network/gpu-rdma-vpc": (rdma_vpc, {"module.vpc"}),
    "modules/project/service-account": (service_account, {"module.service_account"}),
    # Without viewers and caches, which no blueprint of these has.
    "modules/file-system/cloud-storage-bucket": (
        bucket,
        {"google_storage_bucket", "google_storage_bucket_iam_binding", "google_storage_anywhere_cache"},
    ),
    "modules/file-system/gke-persistent-volume": (volume, {"kubectl_manifest"}),
    "modules/compute/resource-policy": (policy, {"google_compute_resource_policy"}),
    "modules/compute/gke-job-template": (job, set()),
    "modules/scheduler/gke-cluster": (
        cluster,
        {
            *("google_container_cluster", "google_container_node_pool", "kubernetes_namespace", "kubernetes_labels"),
            *("module.workload_identity", "module.kubectl_apply"),
        },
    ),
    "modules/compute/gke-node-pool": (
        pool,
        {"google_container_node_pool", "module.kubectl_apply", "module.dranet_template_apply"},
    ),
    # Without the GPU operator, the slice controller and annotations of accounts, which no blueprint of these turns on.
    "modules/management/kubectl-apply": (
        kubectl,
        {
            *("module.kubectl_apply_manifests", "module.install_kueue", "module.configure_kueue"),
            *("module.install_jobset", "module.install_cert_manager", "module.install_nvidia_dra_driver"),
            *("module.install_gpu_operator", "module.install_gib", "module.install_asapd_lite"),
            *("module.install_slice_controller", "kubernetes_annotations"),
        },
    ),
}


def items(module: Module) -> list[Item]:
    """The objects of a module. Raises LookupError for a module, a block or a setting that the map lacks."""
    make, covered = MODULES[module.source]
    if (created := module.creates()) != covered:
        raise LookupError(f"{module.source}: its Terraform and the map differ in {sorted(created ^ covered)}")
    made = [
        Item(item.kind, item.name, {path: value for path, value in item.settings.items() if value})
        for item in make(module)
    ]
    if module.unread:
        raise LookupError(f"{module.id}: the map of {module.source} reads no {sorted(module.unread)}")
    return made
