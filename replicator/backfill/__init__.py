"""Writes history that is still in Kafka, and not in the archive, into segments."""
