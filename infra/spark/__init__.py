"""Runs jobs on Spark."""
