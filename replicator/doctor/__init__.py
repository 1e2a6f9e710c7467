"""Checks a deployment end to end, and says what to fix."""
