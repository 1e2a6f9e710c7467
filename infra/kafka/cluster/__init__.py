"""Queries and changes of a cluster: topics, groups, logs."""
