"""Events of GKE's autoscaler about pending pods.

https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-autoscaler-visibility
"""

AUTOSCALER_EVENTS = "involvedObject.kind=Pod,source=cluster-autoscaler"
"""The selector by which the API server lists them."""
NOT_SCALED_UP = "NotTriggerScaleUp"
"""The reason of those that say why the autoscaler adds no node."""
