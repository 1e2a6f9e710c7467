"""Batches of records: schema, statistics, digests, filters and comparison."""
