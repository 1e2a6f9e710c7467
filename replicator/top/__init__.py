"""The state of replication, read again and again, for a terminal."""
