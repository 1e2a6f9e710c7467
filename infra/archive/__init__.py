"""Segments and control objects in an object store."""
