"""Shared by all Kafka clients: properties, errors, encoding."""
