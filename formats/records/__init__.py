"""Batches of records: their schema, what is computed of them, how two of them compare."""
