"""How replication stands, read from the bucket and the clusters alone: it can be asked when every process is dead."""
