"""Records of topics and bodies of messages, as values and as bytes."""
