"""Jobs on Spark."""
