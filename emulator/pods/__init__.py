"""Runs local processes in place of containers, as a kubelet and the drivers of a node do."""
