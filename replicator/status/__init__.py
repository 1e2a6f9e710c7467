"""The state of replication, read from the bucket and the clusters alone: it works when no process runs."""
