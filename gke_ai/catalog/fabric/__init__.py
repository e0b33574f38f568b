"""Networks between nodes: RDMA, GPUDirect, NVLink, and the levels of a topology."""
