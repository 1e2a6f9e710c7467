"""Topic records and message bodies, as values and as bytes."""
