"""Failover to this region, failback from it, and the rehearsal of a failover."""
