"""The live page for browsers: the cluster, the queue, tenants and single jobs."""
