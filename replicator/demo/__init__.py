"""`replicator demo`: real flights go from one embedded region to another, and are compared there."""

from replicator.demo.command import run

__all__ = ["run"]
