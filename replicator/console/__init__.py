"""The status page: `replicator console`. Reads only."""
