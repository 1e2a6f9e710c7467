"""Rounds: records of segments into target topics."""
