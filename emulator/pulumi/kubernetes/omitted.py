"""Which empty values the Go types of the built-in kinds omit: of fields with `omitempty` that are no pointers.

The API server does not store such a value, and the official plugin sees no change in it (Normalize in
https://github.com/pulumi/pulumi-kubernetes, provider/pkg/clients/unstructured.go). Any other empty value is a value:
the API server keeps `backoffLimit: 0` and `automountServiceAccountToken: false`.
"""

from __future__ import annotations

from typing import Any

# From https://github.com/kubernetes/api/tree/v0.36.1: types.go of each version v1, and of autoscaling/v2. A name that
# is a pointer in any of the types is not in the list.
SCALARS = frozenset(
    """
    action apiVersion audience certificateChainPath chapAuthDiscovery chapAuthSession clusterIP concurrencyPolicy
    credentialBundlePath datasetName datasetUUID description dnsPolicy effect expression externalName
    externalTrafficPolicy failureThreshold fieldPath generateName globalDefault healthCheckNodePort host hostIPC
    hostNetwork hostPID hostPort image imagePullPolicy initialDelaySeconds iscsiInterface key keyPath keyType keyring
    loadBalancerIP medium messageExpression minReadySeconds nodePort operator paused
    periodSeconds persistentVolumeReclaimPolicy policyName pool prefix priorityClassName protectionDomain
    publishNotReadyAddresses pullPolicy reference request resource schedulerName scheme secretFile secretName
    serviceAccount serviceAccountName sessionAffinity sslEnabled stdin stdinOnce storageMode storagePolicyID
    storagePolicyName storagePool subPath subPathExpr subdomain subresource successThreshold targetContainerName
    terminationMessagePath terminationMessagePolicy tty volumeName volumeNamespace workingDir
    """.split()  # noqa: SIM905 (a list of 90 literals is less readable)
)
# Names of maps, whose own keys are not fields.
MAPS = frozenset(
    """
    annotations binaryData data default defaultRequest hard labels limits matchLabels max maxLimitRequestRatio min
    nodeSelector requests stringData volumeAttributes
    """.split()  # noqa: SIM905 (a list of 90 literals is less readable)
)
# Names that are pointers in some types only, with the fields that have these types.
POINTERS_BELOW = {"readOnly": {"csi", "azureDisk"}, "value": {"options", "target"}}


def is_omitted(path: tuple[str | int, ...], value: Any) -> bool:
    """Whether a Go type omits the value of the field at `path`."""
    *above, name = path
    if value is None or value == []:
        return True
    if isinstance(value, dict):
        return not value and name in MAPS
    if value not in (False, 0, "") or (above and above[-1] in MAPS):
        return False
    return name in SCALARS or (name in POINTERS_BELOW and POINTERS_BELOW[str(name)].isdisjoint(above[-2:]))


def without_omitted(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Removes what a Go type omits. The official plugin records the inputs of a built-in kind like this."""
    if isinstance(value, dict):
        return {k: without_omitted(v, (*path, k)) for k, v in value.items() if not is_omitted((*path, k), v)}
    return [without_omitted(item, (*path, n)) for n, item in enumerate(value)] if isinstance(value, list) else value
