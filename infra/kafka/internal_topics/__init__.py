"""The replicator's own topics in the target cluster."""
