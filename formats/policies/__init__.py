"""Pure rules of replication: names of remote topics, and which configs and ACLs cross with a topic."""
