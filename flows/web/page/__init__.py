"""The live page: the cluster, the queue, tenants and single jobs, for browsers."""
