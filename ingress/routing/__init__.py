"""Which archived topics are delivered to which target topics."""
