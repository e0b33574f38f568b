"""The cluster: its network, accounts of nodes, APIs, and the way to its control plane."""
