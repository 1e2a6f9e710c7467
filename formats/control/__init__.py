"""Control objects of the archive, as values and as bytes: one module for each kind."""
