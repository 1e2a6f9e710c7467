"""Protocols of the clusters, object stores and queues that the flows use."""
