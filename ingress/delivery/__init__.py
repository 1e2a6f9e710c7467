"""Delivers the records of segments to target topics, in rounds."""
