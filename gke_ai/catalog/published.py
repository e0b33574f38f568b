"""Where a stack publishes to a tenant what `gke-ai submit` checks its runs by."""

# The ConfigMap, and its annotation with the text: Pulumi would replace a ConfigMap whose data change.
CONFIG_MAP = "gke-ai-stack"
ANNOTATION = "gke-ai/published"
