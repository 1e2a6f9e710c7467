"""Where reading a partition begins."""
