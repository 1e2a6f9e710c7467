"""Reads records from Kafka, inside and outside consumer groups."""
