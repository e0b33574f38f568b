"""Where the provider's properties are in Google's REST API."""

from __future__ import annotations

from collections.abc import Mapping

# Lists of the provider, of which the API has one.
LISTS_OF_ONE = ("rayOperatorConfigs",)
# The API's field for a property of the provider, by the API's type: a dotted field, or None if the property is only the
# provider's or is part of the URL. Source: the reference of each resource and of its REST type:
# https://www.pulumi.com/registry/packages/gcp/api-docs/container/cluster/ (nodepool, storage/bucket),
# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters,
# https://cloud.google.com/storage/docs/json_api/v1/buckets
NAMES: Mapping[str, Mapping[str, str | None]] = {
    "Cluster": {
        "allowNetAdmin": "autopilot.workloadPolicyConfig.allowNetAdmin",
        "clusterAutoscaling": "autoscaling",
        "datapathProvider": "networkConfig.datapathProvider",
        "defaultMaxPodsPerNode": "defaultMaxPodsConstraint.maxPodsPerNode",
        "deletionPolicy": None,
        "deletionProtection": None,
        "dnsConfig": "networkConfig.dnsConfig",
        "enableAutopilot": "autopilot.enabled",
        "enableIntranodeVisibility": "networkConfig.enableIntraNodeVisibility",
        "enableL4IlbSubsetting": "networkConfig.enableL4ilbSubsetting",
        "enableLegacyAbac": "legacyAbac.enabled",
        "enableMultiNetworking": "networkConfig.enableMultiNetworking",
        "enableShieldedNodes": "shieldedNodes.enabled",
        "gatewayApiConfig": "networkConfig.gatewayApiConfig",
        "location": None,
        "masterAuthorizedNetworksConfig": "controlPlaneEndpointsConfig.ipEndpointsConfig.authorizedNetworksConfig",
        "minMasterVersion": "initialClusterVersion",
        "networkingMode": None,
        "nodeLocations": "locations",
        "nodeVersion": None,
        "project": None,
        "removeDefaultNodePool": None,
        "skipNodePoolRefresh": None,
    },
    # Mostly deprecated in the API: `rest.cluster` writes the fields that replace it.
    "PrivateClusterConfig": {"enablePrivateEndpoint": None, "enablePrivateNodes": None},
    "AddonsConfig": {"cloudrunConfig": "cloudRunConfig", "rayOperatorConfigs": "rayOperatorConfig"},
    "ClusterAutoscaling": {
        "autoProvisioningDefaults": "autoprovisioningNodePoolDefaults",
        "autoProvisioningLocations": "autoprovisioningLocations",
        "defaultComputeClassEnabled": "defaultComputeClassConfig.enabled",
        "enabled": "enableNodeAutoprovisioning",
    },
    "AutoprovisioningNodePoolDefaults": {"diskSize": "diskSizeGb"},
    "LinuxNodeConfig": {"hugepagesConfig": "hugepages"},
    "LoggingConfig": {"enableComponents": "componentConfig.enableComponents"},
    "MaintenancePolicy": {
        "dailyMaintenanceWindow": "window.dailyMaintenanceWindow",
        "maintenanceExclusions": None,  # a list in the provider, a map by name in the API: `rest.cluster` writes it
        "recurringWindow": "window.recurringWindow",
    },
    "MonitoringConfig": {
        "enableComponents": "componentConfig.enableComponents",
        "managedPrometheus": "managedPrometheusConfig",
    },
    "NodePool": {
        "cluster": None,
        "deletionPolicy": None,
        "location": None,
        "maxPodsPerNode": "maxPodsConstraint.maxPodsPerNode",
        "nodeConfig": "config",
        "nodeCount": "initialNodeCount",
        "nodeLocations": "locations",
        "project": None,
    },
    "NodeConfig": {
        "guestAccelerators": "accelerators",
        "loggingVariant": "loggingConfig.variantConfig.variant",
        "resourceManagerTags": "resourceManagerTags.tags",
    },
    "RecurringTimeWindow": {"endTime": "window.endTime", "startTime": "window.startTime"},
    "TimeWindow": {"exclusionName": None, "exclusionOptions": "maintenanceExclusionOptions"},
    "AcceleratorConfig": {"count": "acceleratorCount", "type": "acceleratorType"},
    "AlertPolicy": {"deletionPolicy": None, "project": None},
    "Bucket": {
        "deletionPolicy": None,
        "enableObjectRetention": None,  # a parameter of the URL
        "forceDestroy": None,
        "lifecycleRules": "lifecycle.rule",
        "project": None,
        "publicAccessPrevention": "iamConfiguration.publicAccessPrevention",
        "requesterPays": "billing.requesterPays",
        "uniformBucketLevelAccess": "iamConfiguration.uniformBucketLevelAccess.enabled",
    },
    "Bucket.cors": {"methods": "method", "origins": "origin", "responseHeaders": "responseHeader"},
    "Bucket.lifecycle.rule.condition": {
        "matchesPrefixes": "matchesPrefix",
        "matchesStorageClasses": "matchesStorageClass",
        "matchesSuffixes": "matchesSuffix",
        "withState": "isLive",
    },
    # https://cloud.google.com/compute/docs/reference/rest/v1/networks (subnetworks, routers)
    "Network": {
        "bgpAlwaysCompareMed": "routingConfig.bgpAlwaysCompareMed",
        "bgpBestPathSelectionMode": "routingConfig.bgpBestPathSelectionMode",
        "bgpInterRegionCost": "routingConfig.bgpInterRegionCost",
        "deleteBgpAlwaysCompareMed": None,
        "deleteDefaultRoutesOnCreate": None,
        "deletionPolicy": None,
        "project": None,
        "routingMode": "routingConfig.routingMode",
    },
    "Subnetwork": {"deletionPolicy": None, "project": None, "region": None, "sendSecondaryIpRangeIfEmpty": None},
    "Firewall": {"allows": "allowed", "denies": "denied", "deletionPolicy": None, "project": None},
    "Firewall.allowed": {"protocol": "IPProtocol"},
    "Firewall.denied": {"protocol": "IPProtocol"},
    "ResourcePolicy": {"deletionPolicy": None, "project": None, "region": None},
    "Router": {"deletionPolicy": None, "project": None, "region": None},
    "RouterNat": {"deletionPolicy": None, "initialNatIps": None, "project": None, "region": None, "router": None},
    # https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts/create
    "CreateServiceAccountRequest": {
        "createIgnoreAlreadyExists": None,
        "deletionPolicy": None,
        "description": "serviceAccount.description",
        "disabled": None,  # set by a separate call
        "displayName": "serviceAccount.displayName",
        "project": None,
    },
}
# The API of a type, if it isn't GKE's.
DOCUMENTS: Mapping[str, str] = {
    "AlertPolicy": "monitoring.v3",
    "Bucket": "storage.v1",
    "CreateServiceAccountRequest": "iam.v1",
    **dict.fromkeys(("Firewall", "Network", "ResourcePolicy", "Router", "RouterNat", "Subnetwork"), "compute.v1"),
}
