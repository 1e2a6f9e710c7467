"""What the archive says beside segments, as values and as bytes: one module for each kind."""
