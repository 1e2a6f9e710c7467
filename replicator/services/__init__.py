"""Builds the services from their parts."""
