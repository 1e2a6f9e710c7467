"""Consumer groups of the sources, in offsets of this cluster."""
