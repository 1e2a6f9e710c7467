"""`replicator demo`: real flights from one embedded region to another, and the proof that nothing changed on the way."""

from infra.local.demo.command import run

__all__ = ["run"]
