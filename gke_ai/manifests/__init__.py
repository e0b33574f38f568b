"""The Kubernetes objects of runs as plain data, which the components register and `gke-ai submit` creates."""
