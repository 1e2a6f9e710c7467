"""Writes records to Kafka, and attributes failures to records, topics or the writer."""
