"""Decides where reading a partition begins."""
