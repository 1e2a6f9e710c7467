"""Protocols of what the flows need of clusters, object stores and queues."""
