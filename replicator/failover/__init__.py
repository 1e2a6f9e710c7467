"""Failover to this region, failback from it, and the rehearsal of a failover."""

REHEARSAL = "replicator.rehearsal."
"""With what the names of its topics and groups begin. Here, since `--help` shows it and loads nothing else."""
