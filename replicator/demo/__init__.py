"""`replicator demo`: replicates real flight records from one embedded region to another and compares them there."""

from replicator.demo.command import run

__all__ = ["run"]
