"""Our own topics in the target cluster."""
