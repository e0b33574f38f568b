"""The emulated `gcp` resource plugin: the cloud of this machine behind Pulumi's provider protocol.

- `plugin`: the protocol;
- `resource`: the life that all resources have; `containers`, `storage`, `secrets`: what is particular to each, which
  changes replace it among that;
- `functions`: look-ups;
- `diff`: what changed between two sets of inputs;
- `rules`: what Google's API refuses beyond types;
- `rest`: the body that the provider would send, checked against Google's discovery document;
- `store`: what the cloud remembers; `clusters`: what makes its clusters real.

Inputs are checked against the SDK's own types by `emulator.sdk_types`.
"""
