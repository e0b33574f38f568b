"""The emulated `gcp` resource plugin: the cloud of this machine behind Pulumi's provider protocol.

- `plugin`: the protocol;
- `resource`: the life that all resources have; `containers`, `storage`, `secrets`: what is particular to each;
- `functions`: look-ups;
- `schema`: the provider's own properties (`properties.yaml`): which changes replace, which are none, what conflicts;
- `diff`: what the provider plans between two sets of inputs, and what the cloud keeps;
- `rules`: what Google's API refuses beyond types;
- `rest`: the body that the provider would send, checked against Google's discovery document;
- `store`: what the cloud remembers; `clusters`: what makes its clusters real.

Inputs are checked against the SDK's own types by `emulator.sdk_types`.
"""
