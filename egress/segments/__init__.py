"""Turns runs of records into stored segments."""
