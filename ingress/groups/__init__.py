"""Consumer groups at the target: where each continues that stood at an offset of the source."""
