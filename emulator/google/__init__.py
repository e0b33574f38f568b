"""Emulates the `gcp` plugin of Pulumi: the emulated cloud behind Pulumi's provider protocol.

- `plugin`: the protocol
- `resource`: the life cycle of all resources; `containers`, `storage`, `secrets`, …: the resources
- `functions`: look-ups
- `schema`: the provider's properties (`properties.yaml`): which changes replace, which are ignored, what conflicts
- `diff`: the changes that the provider plans, and the values that it keeps
- `rules`, `bucket_rules`, `principals`: Google's rules beyond types
- `rest`, `rest_names`: the body that the provider would send, validated against Google's discovery document
- `store`: the resources of the cloud
- `clusters`, `cluster_records`: the Kubernetes clusters behind GKE's

`emulator.pulumi.sdk_types` checks inputs against the types of the SDK.
"""
