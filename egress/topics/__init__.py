"""Which topics are archived, and which incarnation a path of the archive belongs to."""
